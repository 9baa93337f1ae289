# SPDX-License-Identifier: MIT
"""Keys with a NUL: refused with the key in the message; the other tensors, or all under escaped keys, can be had."""
import json

import pytest

from wfs_testlib import burnpack, pth, st
from wfs_testlib.program import EXIT_UNSUPPORTED, listing, weightfs

KEYS = ['a', 'b\0c', 'd.e\0\0', '\0', 'z']
SHOWN = ['a', 'b%00c', 'd.e%00%00', '%00', 'z']
DATA = {key: bytes([i] * 4) for i, key in enumerate(KEYS)}


def safetensors(folder):
    """Two of the keys are at the front and in the middle of the data."""
    return st.write_parts(folder / 'x.safetensors', [(key, 'U8', [4], data) for key, data in DATA.items()])


def pickled(folder):
    path = folder / 'x.pth'
    tensors = [pth.tensor(pth.storage(key=str(i), cls=pth.name('torch', 'ByteStorage'))) for i in range(5)]
    inner = pth.pairs((pth.text('e\0\0'), tensors[2]))
    value = pth.pairs((pth.text('a'), tensors[0]), (pth.text('b\0c'), tensors[1]), (pth.text('d'), inner), (pth.text('\0'), tensors[3]),
                      (pth.text('z'), tensors[4]), (pth.text('v\0'), pth.number(7)))
    path.write_bytes(pth.checkpoint(value, **{'r%d' % i: data for i, data in enumerate(DATA.values())}))
    return path


def packed(folder):
    path = folder / 'x.bpk'
    names = ['a', 'b#c', 'd.e##', '#', 'z']
    weightfs('convert', st.write(folder / 'y.safetensors', {name: ('U8', [4], data) for name, data in zip(names, DATA.values())}), path)
    raw = path.read_bytes()
    for name in names[1:4]:
        text = burnpack.text(name)
        assert raw.count(text) == 1
        raw = raw.replace(text, burnpack.text(name.replace('#', '\0')))
    path.write_bytes(raw)
    return path


FORMATS = {'safetensors': safetensors, 'pytorch': pickled, 'burnpack': packed}


@pytest.fixture(params=FORMATS)
def path(request, tmp_path):
    return FORMATS[request.param](tmp_path)


def test_such_a_file_is_refused_by_name(path):
    error = weightfs('ls', path, code=EXIT_UNSUPPORTED).error
    assert 'contains a NUL' in error and ('\\x00' in error or '%00' in error) and 'escape_nul' in error


def test_force_shows_the_others(path):
    assert sorted(listing(path, '--force')) == ['a', 'z']
    for key in 'a', 'z':
        assert weightfs('cat', '--force', path, key).raw == DATA[key]
    (finding,) = [one for one in json.loads(weightfs('check', '--force', '--json', path, code=1).stdout)['sources'][0]['findings'] if 'NUL' in one['text']]
    assert finding['severity'] == 'high' and finding['text'].startswith('3 tensors have a NUL')


def test_an_option_escapes_them(path, tmp_path):
    assert sorted(listing(path, '--escape-nul')) == sorted(SHOWN)
    for key, shown in zip(KEYS, SHOWN):
        assert weightfs('cat', '--escape-nul', path, shown).raw == DATA[key]
    found = [one for one in json.loads(weightfs('check', '--escape-nul', '--json', path, code=1).stdout)['sources'][0]['findings'] if 'NUL' in one['text']]
    assert [one['severity'] for one in found] == ['low']
    for target in 'o.safetensors', 'o.pth', 'o.bpk':
        weightfs('convert', '--escape-nul', path, tmp_path / target)
        assert sorted(listing(tmp_path / target)) == sorted(SHOWN)
        assert weightfs('cat', tmp_path / target, 'b%00c').raw == DATA['b\0c']


def test_force_leaves_them_out_of_an_output(path, tmp_path):
    for target in 'o.safetensors', 'o.pth', 'o.bpk':
        weightfs('convert', '--force', path, tmp_path / target)
        assert sorted(listing(tmp_path / target)) == ['a', 'z']


def test_metadata_with_a_nul_has_the_same_ways_out(tmp_path):
    path = st.write(tmp_path / 'x.safetensors', {'a': ('U8', [1], b'1')}, {'m\0': 'x\0'})
    assert "'m\\x00'" in weightfs('info', path, code=EXIT_UNSUPPORTED).error
    for option in '--force', '--escape-nul':
        assert json.loads(weightfs('info', '--json', option, path).stdout)['sources'][0]['metadata'] == {'m%00': 'x\0'}


def test_an_escaped_key_and_a_real_one_are_never_one(tmp_path):
    """The later one counts in safetensors, as for any duplicate, and check says so; a pickle keeps both."""
    path = st.write_parts(tmp_path / 'x.safetensors', [('a\0', 'U8', [1], b'1'), ('a%00', 'U8', [1], b'2')])
    assert 'duplicate key' in weightfs('check', '--escape-nul', path, code=None).stdout + weightfs('check', '--escape-nul', path, code=None).stderr
    (tmp_path / 'x.pth').write_bytes(pth.checkpoint(pth.pairs((pth.text('a\0'), pth.tensor()), (pth.text('a%00'), pth.tensor(size=(2,))))))
    assert sorted(listing(tmp_path / 'x.pth', '--escape-nul')) == ['a%00', 'a%00~2']
