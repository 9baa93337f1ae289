# SPDX-License-Identifier: MIT
"""weightfs discard: edits of a running mount are taken back, all or those of paths, and no crash brings them back."""
import mmap
import os
import random
import shutil
import signal

import pytest

from wfs_testlib import checkpoints, program, pth, st
from wfs_testlib.mount import open_to_all
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_RULES, EXIT_USAGE, tool, weightfs

ATTRIBUTES = ['dtype', 'shape', 'key', 'param_id', 'source_key']
TENSORS = {
    'a.b.weight': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)),
    'a.b.bias': ('F32', [3], st.f32(7, 8, 9)),
    'a.c': ('F32', [2], st.f32(1, 1)),
    'd.weight': ('F32', [4], st.f32(1, 2, 3, 4)),
    'step': ('F32', [1], st.f32(42)),
    'keep': ('F32', [4], st.f32(1, 2, 3, 4)),
}
FORMATS = ['safetensors', 'pth', 'bpk', 'directory']


def look(root):
    """What a person sees of a mount: names, links, contents, sizes, times of files, dtypes and shapes, metadata."""
    seen = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            shown = os.path.relpath(path, root)
            if name in folders:
                seen[shown] = 'directory', stat.st_nlink
                continue
            named = {key: os.getxattr(path, 'user.weightfs.' + key) for key in ATTRIBUTES if has(path, key)}
            with open(path, 'rb') as file:
                seen[shown] = stat.st_ino, stat.st_nlink, stat.st_size, stat.st_mtime_ns, oct(stat.st_mode), named, file.read()
    with open(os.path.join(root, '.weightfs/metadata.json'), 'rb') as file:
        seen['metadata'] = file.read()
    return seen


def has(path, key):
    try:
        os.getxattr(path, 'user.weightfs.' + key)
        return True
    except OSError:
        return False


def steady(seen):
    """Without what lasts only until the unmount, or differs for files that are not of the checkpoint."""
    return {name: one if not isinstance(one, tuple) or len(one) < 7 else (*one[1:3], one[5], one[6]) for name, one in seen.items()}


@pytest.fixture(params=FORMATS)
def made(request, mount, folder):
    """A mount of a source in the format, whose output has it too."""
    ending = request.param
    source = checkpoints.write(folder / ('in.' + {'directory': 'safetensors'}.get(ending, ending)), TENSORS,
                               **({'epoch': pth.number(3)} if ending == 'pth' else {}))
    if ending == 'directory':
        weightfs('convert', '--max-shard-size=40', source, '%s/' % (folder / 'set'))
        source = folder / 'set'
    out = folder / ('out' if ending == 'directory' else 'out.' + ending)
    mnt = mount(source, 'output=%s%s' % (out, '/' if ending == 'directory' else ''))
    mnt.out, mnt.source, mnt.ending = out, source, ending
    return mnt


def write(mnt, name, data):
    with open(mnt / name, 'r+b') as file:
        file.write(data)


def replace(mnt, name):
    shutil.copyfile(mnt / 'd/weight', mnt / '.new')
    os.rename(mnt / '.new', mnt / name)


def exchange(mnt, one, other):
    """renameat2 with RENAME_EXCHANGE."""
    code = ('import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n'
            'sys.exit(libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2) and ctypes.get_errno())')
    tool('/usr/bin/python3', '-SEc', code, mnt / one, mnt / other)


EDITS = {  # what is done, and one path whose edits that is
    'write': (lambda mnt: write(mnt, 'a/b/weight', b'\xff' * 4), 'a/b/weight'),
    'truncate': (lambda mnt: os.truncate(mnt / 'a/b/weight', 8), 'a/b/weight'),
    'grow': (lambda mnt: os.truncate(mnt / 'a/b/weight', 800), 'a/b/weight'),
    'dtype': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.weightfs.dtype', b'I32'), 'a/c'),
    'shape': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.weightfs.shape', b'[1, 2]'), 'a/c'),
    'param_id': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.weightfs.param_id', b'7'), 'a/c'),
    'foreign': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.note', b'x'), 'a/c'),
    'mode': (lambda mnt: os.chmod(mnt / 'a/c', 0o600), 'a/c'),
    'time': (lambda mnt: os.utime(mnt / 'a/c', (1, 1)), 'a/c'),
    'remove': (lambda mnt: os.unlink(mnt / 'a/b/bias'), 'a/b/bias'),
    'rename': (lambda mnt: os.rename(mnt / 'a/b/bias', mnt / 'a/moved'), 'a/moved'),
    'rename, by its old name': (lambda mnt: os.rename(mnt / 'a/b/bias', mnt / 'a/moved'), 'a/b/bias'),
    'rename over another': (lambda mnt: os.rename(mnt / 'a/c', mnt / 'step'), 'step'),
    'rename over another, by its old name': (lambda mnt: os.rename(mnt / 'a/c', mnt / 'step'), 'a/c'),
    'exchange': (lambda mnt: exchange(mnt, 'a/c', 'step'), 'a/c'),
    'exchange of a directory': (lambda mnt: exchange(mnt, 'a/b', 'step'), 'step'),
    'replace': (lambda mnt: replace(mnt, 'a/c'), 'a/c'),
    'remove and create': (lambda mnt: (os.unlink(mnt / 'a/c'), (mnt / 'a/c').write_bytes(b'12345678')), 'a/c'),
    'rename a directory': (lambda mnt: os.rename(mnt / 'a', mnt / 'z'), 'z'),
    'remove a directory': (lambda mnt: shutil.rmtree(mnt / 'a'), 'a'),
    'remove a directory and make it again': (lambda mnt: (shutil.rmtree(mnt / 'a'), os.makedirs(mnt / 'a/b')), 'a'),
    'a directory in a renamed one': (lambda mnt: (os.rename(mnt / 'a', mnt / 'z'), os.rename(mnt / 'd', mnt / 'z/d')), 'z'),
    'create': (lambda mnt: (mnt / 'new').write_bytes(b'1234'), 'new'),
    'create below a new directory': (lambda mnt: (os.mkdir(mnt / 'new'), (mnt / 'new/one').write_bytes(b'1234')), 'new'),
    'link': (lambda mnt: os.link(mnt / 'a/c', mnt / 'again'), 'again'),
    'link and remove': (lambda mnt: (os.link(mnt / 'a/c', mnt / 'again'), os.unlink(mnt / 'a/c')), 'again'),
    'scratch': (lambda mnt: (mnt / '.swp').write_bytes(b'1234'), '.swp'),
    'metadata': (lambda mnt: (mnt / '.weightfs/metadata.json').write_bytes(b'{"by": "me"}'), '.weightfs/metadata.json'),
    'metadata, as an attribute': (lambda mnt: os.setxattr(mnt.path, 'user.weightfs.metadata.by', b'me'), '.weightfs/metadata.json'),
    'metadata, replaced': (lambda mnt: ((mnt / '.weightfs/x').write_bytes(b'{}'), os.rename(mnt / '.weightfs/x', mnt / '.weightfs/metadata.json')),
                           '.weightfs/metadata.json'),
}
VALUES = {
    'value': (lambda mnt: (mnt / 'epoch.json').write_text('4'), 'epoch.json'),
    'removed value': (lambda mnt: os.unlink(mnt / 'epoch.json'), 'epoch.json'),
    'renamed value': (lambda mnt: os.rename(mnt / 'epoch.json', mnt / 'a/time.json'), 'a/time.json'),
    'new value': (lambda mnt: (mnt / 'more.json').write_text('[1]'), 'more.json'),
}


def kinds(made):
    return {**EDITS, **(VALUES if made.ending == 'pth' else {})}


def test_each_kind_of_edit_is_taken_back_by_its_path(made):
    before = look(made.path)
    for name, (edit, path) in kinds(made).items():
        edit(made)
        if name not in ('mode', 'time', 'foreign'):
            look(made.path)  # the kernel has seen it
        assert weightfs('discard', made.path, path).stdout.startswith('discarded '), name
        assert look(made.path) == before, name
        assert made.status()['edits'] == 0 and made.status()['state'] == 'clean', name
    with pytest.raises(OSError, match='No data'):
        os.getxattr(made / 'a/c', 'user.note')


def test_each_kind_of_edit_is_taken_back_with_all(made):
    before = look(made.path)
    for name, (edit, _) in kinds(made).items():
        edit(made)
        assert weightfs('discard', made.path).stdout.startswith('discarded '), name
        assert look(made.path) == before, name
        assert made.status()['edits'] == 0 and made.status()['state'] == 'clean', name
    assert weightfs('discard', made.path).stdout == 'discarded 0 edits\n'


def kill(mnt):
    for pid in mnt.workers:
        os.kill(pid, signal.SIGKILL)
    mnt.allow('signal 9').wait(128 + signal.SIGKILL)


def again(mount, made, name='again'):
    slash = '/' if made.ending == 'directory' else ''
    mnt = mount(made.source, 'output=%s%s' % (made.out, slash), at=made.path.parent / name)
    mnt.source, mnt.out, mnt.ending = made.source, made.out, made.ending
    return mnt.allow('of an earlier mount')


@pytest.mark.parametrize('kind', EDITS)
def test_a_crash_brings_nothing_back(kind, mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    made = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    made.source, made.out, made.ending = source, folder / 'out.safetensors', 'safetensors'
    before = steady(look(made.path))
    edit, path = EDITS[kind]
    edit(made)
    write(made, 'keep', b'KEEP')
    assert weightfs('discard', made.path, path).stdout.startswith('discarded ')
    kill(made)
    found = again(mount, made)
    after = steady(look(found.path))
    assert after.pop('keep')[-1] == b'KEEP' + st.f32(2, 3, 4)
    before.pop('keep')
    assert after == before and found.status()['edits'] == 1
    weightfs('discard', found.path)
    kill(found)
    last = again(mount, made, 'last')
    assert last.status()['edits'] == 0 and (last / 'keep').read_bytes() == st.f32(1, 2, 3, 4)


def test_what_is_not_named_is_kept(made):
    os.rename(made / 'a', made / 'z')
    write(made, 'z/b/weight', b'\xff' * 4)
    write(made, 'z/c', b'\xee' * 4)
    os.unlink(made / 'z/b/bias')
    assert weightfs('discard', made.path, 'z/b/weight').stdout == 'discarded 1 edit\n'
    assert (made / 'z/b/weight').read_bytes() == st.f32(1, 2, 3, 4, 5, 6)
    assert (made / 'z/c').read_bytes()[:4] == b'\xee' * 4 and not (made / 'z/b/bias').exists()
    assert weightfs('discard', made.path, 'a/b').stdout == 'discarded 1 edit\n'
    assert (made / 'z/b/bias').read_bytes() == st.f32(7, 8, 9)
    assert made.status()['edits'] == 2
    assert weightfs('discard', made.path, 'a').stdout == 'discarded 2 edits\n'
    assert (made / 'a/c').read_bytes() == st.f32(1, 1) and not (made / 'z').exists()


def test_what_is_left_is_committed(made):
    os.rename(made / 'step', made / 'pace')
    write(made, 'a/c', b'\xee' * 8)
    (made / 'new').write_bytes(b'not a tensor yet')
    weightfs('discard', made.path, 'new', made / 'a')
    assert weightfs('umount', made.path).stdout.count('committed')
    made.wait()
    expected = {('pace' if key == 'step' else key): one for key, one in TENSORS.items()}
    files = [made.out] if made.out.is_file() else sorted(made.out.glob('*.safetensors'))
    found = {}
    for file in files:
        found.update(checkpoints.read(file))
    assert {key: bytes(one[2]) for key, one in found.items()} == {key: one[2] for key, one in expected.items()}


def test_a_removed_name_comes_back_into_a_directory_that_was_made_again(made):
    shutil.rmtree(made / 'a')
    os.makedirs(made / 'a/b')
    (made / 'a/b/extra').write_bytes(b'1234')
    weightfs('discard', made.path, 'a/b/bias')
    assert sorted(os.listdir(made / 'a/b')) == ['bias', 'extra'] and os.listdir(made / 'a') == ['b']
    weightfs('discard', made.path, 'a')
    assert sorted(os.listdir(made / 'a/b')) == ['bias', 'weight'] and (made / 'a/c').exists()


def test_a_name_that_is_taken_is_refused_in_one_line(made):
    os.rename(made / 'a/c', made / 'a/old')
    (made / 'a/c').write_bytes(b'12345678')
    before = look(made.path)
    error = weightfs('discard', made.path, 'a/old', code=EXIT_COMMIT).error
    assert error.endswith("cannot discard: 'a/c' cannot come back, because 'a/c' has its place; discard 'a/c' as well")
    assert look(made.path) == before
    weightfs('discard', made.path, 'a/old', 'a/c')
    assert not (made / 'a/old').exists() and (made / 'a/c').read_bytes() == st.f32(1, 1)


def test_names_that_went_round_come_back_together(made):
    before = look(made.path)
    os.rename(made / 'a/c', made / 'x')
    os.rename(made / 'step', made / 'a/c')
    os.rename(made / 'x', made / 'step')
    weightfs('discard', made.path, 'step')
    assert look(made.path) == before


def test_ties_come_back(mount, folder):
    source = folder / 'tied.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(first=pth.tensor(), second=pth.tensor())))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    before = look(mnt.path)
    assert (mnt / 'first').stat().st_nlink == 2
    os.unlink(mnt / 'second')
    shutil.copyfile(mnt / 'first', mnt / 'second')
    (mnt / 'first').write_bytes(st.f32(9, 8, 7, 6))
    error = weightfs('discard', mnt.path, 'second', code=EXIT_COMMIT).error
    assert "'second' is another name of the file 'first', which has edits; discard 'first' as well" in error
    weightfs('discard', mnt.path, 'second', 'first')
    assert look(mnt.path) == before
    os.link(mnt / 'first', mnt / 'third')
    (mnt / 'third').write_bytes(st.f32(9, 8, 7, 6))
    weightfs('discard', mnt.path, 'third')
    assert not (mnt / 'third').exists() and (mnt / 'second').read_bytes() == st.f32(9, 8, 7, 6)
    weightfs('discard', mnt.path, 'second')
    assert look(mnt.path) == before


def test_all_names_of_an_edited_file_come_back(mount, folder):
    source = folder / 'tied.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(**{name: pth.tensor() for name in ('first', 'second', 'third', 'fourth')})))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    before = look(mnt.path)
    os.link(mnt / 'first', mnt / 'new')
    (mnt / 'new').write_bytes(st.f32(9, 8, 7, 6))
    for name in ('first', 'second', 'third'):
        os.unlink(mnt / name)
    weightfs('discard', mnt.path, 'new')
    after = look(mnt.path)
    assert sorted(after) == sorted(before)
    for name in ('first', 'second', 'third', 'fourth'):  # the names in the attributes are in another order
        assert (after[name][:5], after[name][6]) == (before[name][:5], before[name][6])
        assert sorted(after[name][5]['key'].split()) == sorted(before[name][5]['key'].split())


@pytest.mark.parametrize('options', [(), ('files=npy',), ('layout=flat',), ('remap=s/^a\\./z./', 'cast=F16')], ids=str)
def test_views_and_forms_of_trees(options, mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), *options)
    before = look(mnt.path)
    names = [name for name, one in before.items() if len(one) == 7]
    write(mnt, names[0], b'\x93')
    os.unlink(mnt / names[1])
    os.rename(mnt / names[2], mnt / 'moved')
    os.setxattr(mnt / names[3], 'user.weightfs.shape', b'[1, 1, 4]')
    (mnt / names[3]).stat()
    weightfs('discard', mnt.path)
    assert look(mnt.path) == before


def test_mistakes(made, folder):
    os.rename(made / 'step', made / 'pace')
    assert "'nix' is neither in the mount nor in its source" in weightfs('discard', made.path, 'pace', 'nix', code=EXIT_RULES).error
    assert (made / 'pace').exists()
    assert "'..'" in weightfs('discard', made.path, '../x', code=EXIT_USAGE).error
    assert "'.weightfs/status.json' cannot have edits" in weightfs('discard', made.path, '.weightfs/status.json', code=EXIT_COMMIT).error
    assert 'bytes, and 12287 is the limit' in weightfs('discard', made.path, *['x' * 200] * 100, code=EXIT_USAGE).error
    assert 'missing MOUNTPOINT' in weightfs('discard', code=EXIT_USAGE).error
    assert 'not a weightfs mount point' in weightfs('discard', folder, code=EXIT_MOUNT).error
    assert weightfs('discard', '%s/' % made.path, '%s//pace/.' % made.path).stdout == 'discarded 1 edit\n'


def test_a_mount_without_an_output(mount, small):
    mnt = mount(small)
    assert 'read-only and has no edits' in weightfs('discard', mnt.path, code=EXIT_COMMIT).error


@pytest.mark.root
def test_another_user_cannot_discard(mount, small, folder):
    open_to_all(folder)
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'), 'allow_other')
    os.rename(mnt / 'step', mnt / 'pace')
    done = tool('setpriv', '--reuid=65534', '--clear-groups', *program.command_for_others(), 'discard', mnt.path, code=None)
    assert done.code == EXIT_COMMIT and 'only the user who mounted it may discard edits' in done.stderr
    assert (mnt / 'pace').exists()


@pytest.mark.parametrize('target', ['output', 'rw'])
def test_committed_edits_need_a_word(mount, small, folder, target):
    out = folder / 'out.safetensors'
    mnt = mount(small, 'rw' if target == 'rw' else 'output=%s' % out)
    before = steady(look(mnt.path))
    os.rename(mnt / 'step', mnt / 'pace')
    mnt.commit()
    write(mnt, 'a/c', b'J')
    error = weightfs('discard', mnt.path, 'a/c', code=EXIT_COMMIT).error
    assert '--committed' in error and (mnt / 'a/c').read_bytes() == b'Jello'
    assert weightfs('discard', '--committed', mnt.path).stdout == 'discarded 2 edits\n'
    assert steady(look(mnt.path)) == before and mnt.status()['state'] == 'dirty'
    weightfs('umount', mnt.path)
    mnt.wait()
    assert list(st.read(small if target == 'rw' else out).tensors) == ['step', 'a.b.bias', 'a.b.weight', 'none', 'a.c']


def test_open_files_and_mappings_see_the_source_again(made):
    with open(made / 'a/b/weight', 'r+b', buffering=0) as file, open(made / 'a/c', 'r+b') as other:
        mapped = mmap.mmap(other.fileno(), 8)
        mapped[:4] = b'\xff' * 4
        mapped.flush()
        file.write(b'\xff' * 4)
        os.rename(made / 'a', made / 'z')
        weightfs('discard', made.path)
        assert os.pread(file.fileno(), 4, 0) == st.f32(1) and mapped[:4] == st.f32(1)
        os.pwrite(file.fileno(), st.f32(5), 0)
        mapped.close()
    assert (made / 'a/b/weight').read_bytes() == st.f32(5, 2, 3, 4, 5, 6) and made.status()['edits'] == 1


def test_one_thread_is_enough(folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    mnt = folder / 'mnt'
    tool(*program.COMMAND, source, mnt, '-s', '-o', 'output=%s' % (folder / 'out.safetensors'))
    try:
        for _ in range(20):
            write(mnt, 'a/c', b'xx')
            os.rename(mnt / 'a/b', mnt / 'b')
            list(os.walk(mnt))
            weightfs('discard', mnt)
            assert (mnt / 'a/b/bias').exists() and (mnt / 'a/c').read_bytes() == st.f32(1, 1)
    finally:
        weightfs('umount', '--discard', mnt)


def test_a_journal_without_edits_is_empty(made, folder):
    os.rename(made / 'step', made / 'pace')
    journal, = folder.rglob('journal')

    def records():
        return [line.split()[2:] for line in journal.read_text().rstrip('\0').splitlines()]

    weightfs('discard', made.path, 'pace')
    assert records()[-1] == ['U', 'pace']
    assert weightfs('discard', made.path, 'pace', code=EXIT_RULES) and len(records()) == 3
    os.rename(made / 'step', made / 'pace')
    weightfs('discard', made.path)
    assert records() == []
    os.rename(made / 'step', made / 'pace')
    assert [record[0] for record in records()] == ['O', 'R']


# ---- at random ----

NAMES = ['a', 'a/b', 'a/b/weight', 'a/b/bias', 'a/c', 'd', 'd/weight', 'step', 'x', 'x/y', 'a/x', 'd/b', 'again', '.s']


def edit_at_random(mnt, rng):
    """One call that may fail, as many do."""
    one, other = mnt / rng.choice(NAMES), mnt / rng.choice(NAMES)
    try:
        kind = rng.randrange(11)
        if kind == 0:
            with open(one, 'r+b') as file:
                file.write(bytes(rng.randrange(256) for _ in range(4)))
        elif kind < 4:
            os.rename(one, other)
        elif kind == 4:
            os.unlink(one)
        elif kind == 5:
            os.mkdir(one)
        elif kind == 6:
            one.write_bytes(bytes(8))
        elif kind == 7:
            os.link(one, other)
        elif kind == 8:
            os.setxattr(one, 'user.weightfs.shape', rng.choice([b'[2]', b'[1, 2]', b'[8]']))
        elif kind == 9:
            shutil.rmtree(one)
        else:
            exchange(mnt, one.relative_to(mnt.path), other.relative_to(mnt.path))
    except (OSError, AssertionError):
        pass


def discard_at_random(mnt, rng):
    paths = rng.sample(NAMES, rng.randrange(1, 4))
    before = look(mnt.path)
    done = weightfs('discard', mnt.path, *paths, code=None)
    assert done.code in (0, EXIT_COMMIT, EXIT_RULES), done.stderr
    if done.code != 0:
        assert look(mnt.path) == before
    return done.code == 0


def run_at_random(mount, folder, seed, n_rounds):
    rng = random.Random(seed)
    source = folder / 'in.pth'
    source.write_bytes(checkpoints._pickled(TENSORS, {'epoch': pth.number(3)}))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    mnt.source, mnt.out, mnt.ending = source, folder / 'out.pth', 'pth'
    before = look(mnt.path)
    n_done = 0
    for i in range(n_rounds):
        for _ in range(rng.randrange(1, 12)):
            edit_at_random(mnt, rng)
        n_done += discard_at_random(mnt, rng)
        shown = steady(look(mnt.path))
        if i % 4 == 3:  # the journal gives the same
            kill(mnt)
            mnt = again(mount, mnt, 'again%d' % i)
            assert steady(look(mnt.path)) == shown, (seed, i)
        if i % 3 == 2:
            weightfs('discard', mnt.path)
            assert steady(look(mnt.path)) == steady(before), (seed, i)
            assert mnt.status()['edits'] == 0
    assert n_done > 0
    weightfs('umount', '--discard', mnt.path)
    mnt.wait()


@pytest.mark.parametrize('seed', range(3))
def test_random_edits_are_taken_back(mount, folder, seed):
    run_at_random(mount, folder, seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(100, 140))
def test_many_random_edits_are_taken_back(mount, folder, seed):
    run_at_random(mount, folder, seed, 25)
