# SPDX-License-Identifier: MIT
"""Tensors in parts as the rows of one: the other way of split, and back to torch's modules from Burn's."""
import numpy
import pytest

from wfs_testlib import merging, st
from wfs_testlib.program import weightfs

RANDOM = numpy.random.default_rng(1)
OPTION = '--fuse=in_proj_:query.,key.,value.'


def write(path, values, dtype='F32'):
    return st.write(path, {key: (dtype, list(one.shape), merging.encode(one, dtype)) for key, one in values.items()})


def arrays(path):
    return {key: one for key, (_, one) in merging.arrays(path).items()}


@pytest.fixture
def attention():
    """Two layers; with rows of different numbers in one of them."""
    rows = {'query': 8, 'key': 4, 'value': 3}
    return {'%s.attn.%s.%s' % (layer, name, leaf): RANDOM.standard_normal((n, 6)[:2 if leaf == 'weight' else 1])
            for layer in ('l.0', 'l.1') for name, n in rows.items() for leaf in ('weight', 'bias')}


def test_rows_are_joined_and_split_again(memory, attention):
    write(memory / 'in.safetensors', attention | {'l.0.attn.output.weight': numpy.ones((2, 2)), 'monkey.weight': numpy.ones(1)})
    weightfs('convert', OPTION, memory / 'in.safetensors', memory / 'out.safetensors')
    found, before = arrays(memory / 'out.safetensors'), arrays(memory / 'in.safetensors')
    assert set(found) == {key.replace('query.', 'in_proj_') for key in before if not ('.key.' in key or '.value.' in key)}
    for layer in ('l.0', 'l.1'):
        for leaf in ('weight', 'bias'):
            parts = [before['%s.attn.%s.%s' % (layer, name, leaf)] for name in ('query', 'key', 'value')]
            assert numpy.array_equal(found['%s.attn.in_proj_%s' % (layer, leaf)], numpy.concatenate(parts))
    weightfs('convert', '--split=in_proj_:query.=8,key.=4,value.=3', memory / 'out.safetensors', memory / 'back.safetensors')
    back = arrays(memory / 'back.safetensors')
    assert set(back) == set(before) and all(numpy.array_equal(back[key], before[key]) for key in before)


def test_a_mount_and_every_format_have_it(mount, folder, attention):
    write(folder / 'in.safetensors', attention)
    weightfs('convert', OPTION, folder / 'in.safetensors', folder / 'out.pth')
    weightfs('convert', folder / 'out.pth', folder / 'back.safetensors')
    mnt = mount(folder / 'in.safetensors', OPTION.removeprefix('--').replace(',', '\\,'))
    for key, (_, _, data) in st.read(folder / 'back.safetensors').tensors.items():
        assert (mnt / key.replace('.', '/')).read_bytes() == data
    assert not (mnt / 'l/0/attn/key').exists()


def test_other_options_see_the_whole(memory, attention):
    write(memory / 'in.safetensors', attention, 'BF16')
    weightfs('convert', OPTION, '--cast=F32', '--transpose=in_proj_weight', memory / 'in.safetensors', memory / 'out.safetensors')
    found, before = arrays(memory / 'out.safetensors'), arrays(memory / 'in.safetensors')
    parts = [before['l.0.attn.%s.weight' % name] for name in ('query', 'key', 'value')]
    assert numpy.array_equal(found['l.0.attn.in_proj_weight'], numpy.concatenate(parts).T)
    plan = weightfs('plan', OPTION, memory / 'in.safetensors').stdout
    assert 'l.0.attn.query.weight\tl.0.attn.in_proj_weight' in plan and 'rows of 3 tensors' in plan


def test_what_does_not_fit_is_named(memory, attention):
    def error(*options):
        return weightfs('ls', *options, memory / 'in.safetensors', code=7).error

    write(memory / 'in.safetensors', attention)
    for text in ('in_proj', 'in_proj_:query.', 'in_proj_:query.,', ':'):
        assert 'is not of the form WHOLE:A,B,C' in error('--fuse=%s' % text)
    assert 'matches no key' in weightfs('ls', '--fuse=x:nothing.,other.', memory / 'in.safetensors', has_notices=True).error
    del attention['l.1.attn.value.bias']
    write(memory / 'in.safetensors', attention)
    assert "'l.1.attn.value.bias' is not there, which goes with 'l.1.attn.query.bias'" in error(OPTION)
    attention['l.1.attn.value.bias'] = RANDOM.standard_normal((3, 1))
    write(memory / 'in.safetensors', attention)
    assert "the rows of 'l.1.attn.query.bias' (F32 [8]) and 'l.1.attn.value.bias' (F32 [3, 1]) cannot" in error(OPTION)


def test_attention_of_burn_becomes_that_of_torch(memory):
    values = {'m.%s.weight' % name: RANDOM.standard_normal((4, 4)) for name in ('query', 'key', 'value', 'output')}
    write(memory / 'in.safetensors', values)
    classes = ['--from=burn', '--to=torch', '--class=m:Linear']
    notice = weightfs('ls', *classes, memory / 'in.safetensors', has_notices=True).error
    assert 'fuse=in_proj_weight:query.weight,key.weight,value.weight makes it' in notice
    weightfs('convert', *classes, '--fuse=in_proj_weight:query.weight,key.weight,value.weight', memory / 'in.safetensors', memory / 'out.safetensors')
    before = arrays(memory / 'in.safetensors')
    assert numpy.array_equal(arrays(memory / 'out.safetensors')['m.in_proj_weight'],
                             numpy.concatenate([before['m.%s.weight' % name].T for name in ('query', 'key', 'value')]))


FORMS = {'safetensors': [], 'pth': [], 'bpk': [], 'mpk': [], 'gguf': [], 'shards/': ['--format=safetensors', '--max-shard-size=1K'], 'distributed': ['--format=dcp']}


@pytest.mark.parametrize('form', FORMS)
def test_every_format_as_source_and_target(memory, form):
    random = numpy.random.default_rng(1)
    parts = {'q': random.standard_normal((8, 32)).astype('<f4'), 'k': random.standard_normal((4, 32)).astype('<f4'), 'v': random.standard_normal((4, 32)).astype('<f4')}
    others = {name: random.standard_normal(part.shape).astype('<f4') for name, part in parts.items()}
    for name, values in (('plain', parts), ('other', others)):
        st.write(memory / (name + '.safetensors'), {'m.%s_proj.weight' % part: ('F32', list(one.shape), one.tobytes()) for part, one in values.items()})
    source = '%s/%s' % (memory, form if FORMS[form] else 'source.' + form)
    weightfs('convert', *FORMS[form], memory / 'plain.safetensors', source, has_notices=True)
    fuse = '--fuse=qkv.weight:q_proj.weight,k_proj.weight,v_proj.weight'
    whole = numpy.concatenate(list(parts.values()))
    mean = ((whole.astype('<f8') + numpy.concatenate(list(others.values()))) / 2).astype('<f2')
    for number, (target, options) in enumerate(FORMS.items()):
        for more, dtype, exact in (([], 'F32', whole), (['--average=%s' % (memory / 'other.safetensors'), '--cast=F16'], 'F16', mean)):
            out = '%s/%d-%s-%s' % (memory, number, dtype, target if options else 'out.' + target)
            weightfs('convert', *options, *more, fuse, source, out, has_notices=True)
            weightfs('convert', out, memory / 'back.safetensors', '--overwrite', has_notices=True)
            assert st.read(memory / 'back.safetensors').tensors == {'m.qkv.weight': (dtype, list(exact.shape), exact.tobytes())}, (target, dtype)
            assert weightfs('cat', *more, fuse, source, 'm.qkv.weight', has_notices=True).raw == exact.tobytes()
