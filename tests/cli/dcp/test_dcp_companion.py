# SPDX-License-Identifier: MIT
"""Lightning's meta.pt beside .metadata: its dict belongs to the checkpoint, and goes with it."""
import json
import os
import shutil
import struct
import subprocess

import numpy as np
import pytest

from wfs_testlib import crash, dcp, dcp_read, program, pth, pth_read, shared
from wfs_testlib.bad_server import BadServer
from wfs_testlib.hub_server import hub
from wfs_testlib.program import weightfs

GOLDEN = shared.FOLDER / 'golden'
LIGHTNING = [GOLDEN / 'field/007-lightning-meta-pt/lit', GOLDEN / 'layouts/lightning-fsdp/epoch=0-step=2.ckpt', GOLDEN / 'layouts/lightning-fsdp-meta-only-weights']
SCORE = pth.tensor(pth.storage('0', numel=1), 0, (), ())
META = pth.dictionary(epoch=pth.number(3), hyper_parameters=pth.dictionary(lr=pth.number(7), name=pth.text('a')),
                      callbacks=pth.dictionary(best=SCORE, path=pth.text('x.ckpt')))
EVIL = pth.call(pth.name('posix', 'system'), pth.text('true'))


def made(folder, meta=META, **storages):
    """A model and an optimizer in two files, and what is beside them."""
    writer = dcp.Writer(folder)
    weight = np.arange(6, dtype='<f4').reshape(2, 3)
    writer.tensor('model.w', 'F32', weight, [([0, 0], [1, 3]), ([1, 0], [1, 3])], path=('model', 'w'))
    writer.value('optimizer_0.lr', pth.number(1), path=('optimizer_0', 'lr'))
    writer.write()
    (folder / 'meta.pt').write_bytes(pth.checkpoint(meta, **{'r0': struct.pack('<f', 2.5), **storages}))
    return folder


@pytest.fixture
def source(tmp_path):
    return made(tmp_path / 'lit')


def config(path):
    return json.loads(weightfs('config', path).stdout)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- reading ----

def test_it_is_read_with_the_tensors(source):
    assert weightfs('ls', source).stdout == 'model.w\tF32\t[2, 3]\t24\ncallbacks.best\tF32\t[]\t4\n'
    assert config(source) == {'optimizer_0.lr': 1, 'epoch': 3, 'hyper_parameters': {'lr': 7, 'name': 'a'}, 'callbacks.path': 'x.ckpt'}
    assert weightfs('cat', source, 'callbacks.best').raw == struct.pack('<f', 2.5)
    assert weightfs('config', source, 'hyper_parameters').stdout == weightfs('config', source / '.metadata', 'hyper_parameters').stdout
    assert "'meta.pt'" not in weightfs('check', source).stdout
    assert str(source / 'meta.pt') in weightfs('info', source).stdout


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('folder', LIGHTNING, ids=lambda path: path.name)
def test_what_lightning_wrote_is_one_dict(folder, tmp_path):
    """As lightning.fabric's consolidate_checkpoint makes it: the dict of .metadata, updated with the other."""
    weightfs('convert', folder, tmp_path / 'whole.pth')
    whole, meta = pth_read.load(tmp_path / 'whole.pth'), pth_read.load(folder / 'meta.pt')
    assert list(whole)[-len(meta):] == list(meta) and all(whole[key] == meta[key] for key in meta)
    weightfs('convert', '--format=dcp', folder, tmp_path / 'again')
    assert set(whole) - set(meta) == set(dcp_read.load(tmp_path / 'again'))
    assert (tmp_path / 'again/meta.pt').read_bytes() == (folder / 'meta.pt').read_bytes()
    assert config(tmp_path / 'again') == config(folder)


def test_a_file_per_rank_has_it_too(source):
    (source / '.metadata').rename(source / '__0.metadata')
    assert config(source)['epoch'] == 3


def test_a_key_of_both_is_an_error(tmp_path):
    source = made(tmp_path / 'lit', pth.dictionary(epoch=pth.number(1), model=pth.number(2)))
    error = weightfs('ls', source, code=program.EXIT_DAMAGED).error
    assert "'model' is in .metadata and in 'meta.pt'" in error
    (source / 'meta.pt').rename(source / 'meta.other')
    weightfs('ls', source)


@pytest.mark.parametrize('content, text', [(pth.checkpoint(b'](' + pth.number(1) + b'e', r0=b''), 'it is not a dict'), (b'x', 'zip'), (b'', ''),
                                           (pth.checkpoint(pth.dictionary(a=b'R'), r0=b''), 'pickle')], ids=['list', 'x', 'empty', 'pickle'])
def test_one_that_cannot_be_read_is_told_and_left_out(source, tmp_path, content, text):
    (source / 'meta.pt').write_bytes(content)
    found = weightfs('check', source, code=1).stdout
    assert "'meta.pt' cannot be read" in found and text in found
    assert config(source) == {'optimizer_0.lr': 1}
    weightfs('convert', '--format=dcp', source, tmp_path / 'out')
    assert not (tmp_path / 'out/meta.pt').exists()


def test_a_link_out_of_the_directory_is_not_followed(source, tmp_path):
    (source / 'meta.pt').rename(tmp_path / 'away.pt')
    (source / 'meta.pt').symlink_to('/proc/self/environ')
    assert "'meta.pt' cannot be read" in weightfs('check', source, code=1).stdout


def test_limits_and_checksums_are_those_of_other_values(source):
    assert 'limit' in weightfs('ls', '--limit', 'opcodes=1000', made(source.parent / 'long', pth.dictionary(**{'k%d' % i: pth.number(i) for i in range(2000)})),
                               code=program.EXIT_UNSUPPORTED).error
    content = bytearray((source / 'meta.pt').read_bytes())
    content[content.index(struct.pack('<f', 2.5))] ^= 1
    (source / 'meta.pt').write_bytes(content)
    assert "'meta.pt'" in weightfs('check', source, code=1).stdout


def test_names_that_run_code_are_told_and_left_out_on_request(tmp_path):
    source = made(tmp_path / 'lit', pth.dictionary(epoch=pth.number(3), hook=EVIL))
    assert 'system of module posix' in weightfs('check', source, code=None).stdout
    weightfs('convert', '--safe', '--format=dcp', source, tmp_path / 'out', has_notices=True)
    assert b'system' not in (tmp_path / 'out/meta.pt').read_bytes()
    assert pth_read.load(tmp_path / 'out/meta.pt') == {'epoch': 3, 'hook': None}


# ---- writing ----

UNTOUCHED = [[], ['--rename', 'model', 'net'], ['--cast=^model:F16'], ['--exclude=^model'], ['--max-shard-size=8']]


@pytest.mark.parametrize('options', UNTOUCHED, ids=' '.join)
def test_it_is_copied_while_nothing_in_it_changes(source, tmp_path, options):
    weightfs('convert', '--format=dcp', *options, source, tmp_path / 'out')
    assert (tmp_path / 'out/meta.pt').read_bytes() == (source / 'meta.pt').read_bytes()
    assert 'epoch' not in dcp_read.load(tmp_path / 'out') and config(tmp_path / 'out')['epoch'] == 3


def test_its_edits_are_written_into_it(source, tmp_path):
    before = pth_read.load(source / 'meta.pt')
    weightfs('convert', '--format=dcp', source, tmp_path / 'same')
    for words, changed in ((['--set-value=epoch=4'], {'epoch': 4}), (['--set-value=hyper_parameters={"lr": 8, "name": "b"}'], {'hyper_parameters': {'lr': 8, 'name': 'b'}}),
                           (['--remove=callbacks.best'], {'callbacks': {'path': 'x.ckpt'}}), (['--remove=epoch'], {'epoch': None})):
        out = tmp_path / words[0].replace('*', '').split('{')[0]
        weightfs('edit', '--format=dcp', *words, source, out)
        expected = {key: value for key, value in {**before, **changed}.items() if value is not None}
        assert pth_read.load(out / 'meta.pt') == expected, words
        assert dcp_read.load(out) == dcp_read.load(tmp_path / 'same'), words
        weightfs('check', out)


def test_its_tensors_are_cast_and_renamed_in_it(source, tmp_path):
    weightfs('convert', '--format=dcp', '--cast=F16', '--rename', 'callbacks.best', 'callbacks.score', source, tmp_path / 'out')
    callbacks = pth_read.load(tmp_path / 'out/meta.pt')['callbacks']
    assert (callbacks['score'].dtype, callbacks['score'].data) == ('F16', struct.pack('<e', 2.5))
    assert set(dcp_read.load(tmp_path / 'out')) == {'model', 'optimizer_0'}
    weightfs('convert', '--rename', 'callbacks', 'hooks', '--format=dcp', source, tmp_path / 'named')
    assert set(pth_read.load(tmp_path / 'named/meta.pt')) == {'epoch', 'hyper_parameters', 'hooks'}


def test_one_of_another_checkpoint_is_not_replaced(source, tmp_path):
    target = made(tmp_path / 'out', pth.dictionary(epoch=pth.number(9)))
    before = contents(target)
    weightfs('convert', source, tmp_path / 'plain.pth')
    bare = made(tmp_path / 'bare')
    (bare / 'meta.pt').unlink()
    old = contents(bare)
    assert "has no 'meta.pt'" in weightfs('convert', '--overwrite', '--format=dcp', source, bare, code=program.EXIT_COMMIT).error and contents(bare) == old
    for words in ([source], ['--exclude=callbacks', source], [tmp_path / 'plain.pth']):
        error = weightfs('convert', '--overwrite', '--format=dcp', *words, target, code=program.EXIT_COMMIT).error
        assert "'meta.pt' in the directory is not what goes with the new checkpoint" in error
        assert contents(target) == before
    assert "'meta.pt'" in weightfs('edit', '--overwrite', '--format=dcp', '--set-value=epoch=4', source, source, code=program.EXIT_COMMIT).error
    weightfs('edit', '--overwrite', '--format=dcp', '--remove=model.*', source, source)
    assert config(source)['epoch'] == 3


# ---- on the network ----

def test_it_is_read_by_url_and_from_the_hub(source, serve, tmp_path):
    files = contents(source)
    server = serve(tmp_path)
    with BadServer(b'', default=hub('a/b', files)) as endpoint:
        env = {**os.environ, 'HF_ENDPOINT': endpoint.origin, 'HF_HOME': str(tmp_path / 'none')}
        for i, url in enumerate((server.url(source) + '/', server.url(source / '.metadata'), 'hf://a/b/.metadata')):
            assert weightfs('ls', url, env=env).stdout == weightfs('ls', source).stdout
            assert weightfs('config', url, env=env).stdout == weightfs('config', source).stdout
            weightfs('convert', '--format=dcp', url, tmp_path / str(i), env=env)
            assert (tmp_path / str(i) / 'meta.pt').read_bytes() == files['meta.pt']
    (source / 'meta.pt').unlink()
    assert 'epoch' not in config(server.url(source) + '/')


# ---- in a mount ----

def test_its_values_are_files_of_a_mount(source, mount, tmp_path):
    mnt = mount(source, 'output=%s' % (tmp_path / 'out'), 'format=dcp')
    assert (mnt / 'epoch.json').read_text() == '3\n' and json.loads((mnt / 'hyper_parameters.json').read_text()) == {'lr': 7, 'name': 'a'}
    (mnt / 'model/w').write_bytes(bytes(24))
    mnt.commit()
    assert (tmp_path / 'out/meta.pt').read_bytes() == (source / 'meta.pt').read_bytes()
    (mnt / 'callbacks/best').write_bytes(struct.pack('<f', 4))
    mnt.allow("'meta.pt' in the directory is not what goes").commit(code=1)
    for name in ('.metadata', '__0_0.distcp', 'meta.pt'):
        (tmp_path / 'out' / name).unlink()
    mnt.commit()
    assert pth_read.load(tmp_path / 'out/meta.pt')['callbacks']['best'].data == struct.pack('<f', 4)


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('mode', ['kill-before', 'kill-after', 'enospc-on'])
def test_a_fault_at_any_call_is_mended_by_the_next_save(source, tmp_path, mode):
    """A new directory, which gets meta.pt with another value, and Megatron's common.pt: after a fault another edit is saved there."""
    folder, plain = tmp_path / 'folder', tmp_path / 'plain.pth'
    folder.mkdir()
    (source / 'common.pt').write_bytes(b'common')
    weightfs('convert', source, plain)
    for at in range(1, 500):
        shutil.rmtree(folder / 'out', ignore_errors=True)
        injection = crash.Injection(folder, tmp_path / 'inject', mode, at)
        done = subprocess.run([*program.COMMAND, 'edit', '--format=dcp', '--set-value=epoch=4', source, folder / 'out'], env=injection.environment,
                              check=False, stderr=subprocess.DEVNULL)
        is_there = (folder / 'out/.metadata').exists()
        assert not is_there or config(folder / 'out')['epoch'] == 4
        if injection.n_calls() < at:
            assert done.returncode == 0 and at > 20
            break
        if is_there:
            continue
        has_it = at % 2 == 0
        words = ['--set-value=epoch=5', source] if has_it else [plain]
        again = weightfs('edit', '--format=dcp', *words, folder / 'out', code=None)
        if again.code != 0:
            assert "'meta.pt' in the directory is not what goes with the new checkpoint" in again.error
            (folder / 'out/meta.pt').unlink()
            weightfs('edit', '--format=dcp', *words, folder / 'out')
        assert sorted({*os.listdir(folder / 'out')} - {'common.pt'}) == ['.metadata', '__0_0.distcp'] + ['meta.pt'] * has_it
        assert config(folder / 'out')['epoch'] == (5 if has_it else 3)
