# SPDX-License-Identifier: MIT
"""A staging directory that somebody else has made: nothing in it names what a verb or a mount touches."""
import os

import pytest

from wfs_testlib import st
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import weightfs
from wfs_testlib.stage import everything_but, journal, plant, stage_of


@pytest.fixture
def place(folder):
    """Files of the user, and the directory of an output into which a stranger has written."""
    (folder / 'home').mkdir()
    st.write(folder / 'home/model.safetensors', {'w': ('U8', [4], b'mine')})
    (folder / 'home/notes').write_text('precious')
    (folder / 'home/line').write_text('one line without an end')
    (folder / 'given').mkdir()
    st.write(folder / 'given/source.safetensors', {'w': ('U8', [4], b'1234')})
    return folder


NAMES = ['home/notes', 'home/model.safetensors', 'given/source.safetensors']
VERBS = [['--discard'], ['--resume'], ['--publish'], ['--publish', '--force'], []]


def attempts(folder, output):
    """Each verb of recovery, and a mount: whatever they say, they leave what the user has not named."""
    source = folder / 'given/source.safetensors'
    for verb in VERBS:
        for more in ([], ['--source', source], ['--source', source, '--options='], ['--onto', source, '--options=']):
            if not more or '--publish' in verb or (verb == ['--resume'] and '--onto' not in more):
                yield ['recover', *verb, output, *more]


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('is_complete', [False, True])
def test_a_journal_names_no_file(mount, place, name, is_complete):
    """The name of a temporary file leads to any file, in place of the output or beside it."""
    output = place / 'given/out.safetensors'
    victim = place / name
    now = victim.stat()
    ending = ['P %d %d %d %d 1' % (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)] if is_complete else []
    kinds = [['O x', 'B %s/x %s' % (victim.parent, victim.name)], ['O x', 'D w', 'B %s/x %s' % (victim.parent, victim.name)],
             ['O x', 'D w', 'B %s %s' % (victim, victim.name)], ['O x', 'D w', 'B %s/x ..' % victim]]
    before = everything_but(place, stage_of(output))
    for records in kinds:
        for command in attempts(place, output):
            if not stage_of(output).exists():
                plant(output, records + ending)
            weightfs(*command, code=None)
            found = everything_but(place, stage_of(output), output)
            assert found == before, (records, command)
            output.unlink(missing_ok=True)


def test_a_base_names_no_output_and_no_option(place):
    output, victim = place / 'given/out.safetensors', place / 'home/model.safetensors'
    source = place / 'given/source.safetensors'
    now = victim.stat()
    base = '#source %s\n#output %s\n#stage %s\n#cwd %s\nview overwrite\nview sandbox=off\n#replaces %d %d %d\n' % (
        source, victim, stage_of(victim), place / 'home', now.st_ino, now.st_size, now.st_mtime_ns)
    before = everything_but(place, stage_of(output))
    for command in attempts(place, output):
        if not stage_of(output).exists():
            plant(output, ['O x', 'D w'], base)
        weightfs(*command, code=None)
        assert everything_but(place, stage_of(output), output) == before, command
        output.unlink(missing_ok=True)
    if not stage_of(output).exists():
        plant(output, ['O x', 'D w'], base)
    assert 'name them' in weightfs('recover', '--publish', output, code=9).error


def die(mnt):
    workers = mnt.workers_now()
    mnt.kill()
    wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
    mnt.forget()


@pytest.fixture
def left(mount, place):
    """The output of a mount that was killed: its edits fit the source."""
    output = place / 'given/out.safetensors'
    mnt = mount(place / 'given/source.safetensors', 'output=%s' % output)
    (mnt / 'w').write_bytes(b'5678')
    die(mnt)
    return output


@pytest.mark.parametrize('name', NAMES[:2])
def test_a_journal_that_fits_names_no_file_to_a_mount(mount, place, left, name):
    victim, path = place / name, stage_of(left) / 'journal'
    text = path.read_bytes()
    path.write_bytes(text + journal('B %s/x %s' % (victim.parent, victim.name), first=text.count(b'\n') + 1))
    base = stage_of(left) / 'base'
    base.write_text(base.read_text().replace('#output %s' % left, '#output %s' % victim))
    before = everything_but(place, stage_of(left), place / 'mnt')
    mnt = mount(place / 'given/source.safetensors', 'output=%s' % left, at=place / 'mnt').allow('shown again')
    assert (mnt / 'w').read_bytes() == b'5678'
    assert everything_but(place, stage_of(left), place / 'mnt') == before
    mnt.unmount()
    assert everything_but(place, left, place / 'mnt') == before
    assert st.read(left).tensors['w'][2] == b'5678'


@pytest.mark.parametrize('has_end', [False, True])
def test_a_journal_does_not_allow_to_replace_a_file(mount, place, has_end):
    """Whoever knows its inode and its contents can write that it is the one that was published."""
    source, output = place / 'given/source.safetensors', place / 'given/out.safetensors'
    mnt = mount(source, 'output=%s' % output)
    (mnt / 'w').write_bytes(b'5678')
    mnt.commit()
    (mnt / 'w').write_bytes(b'9abc')
    die(mnt)
    path = stage_of(output) / 'journal'
    texts = [line.split(b' ', 2)[2].decode() for line in path.read_bytes().splitlines()]
    assert [text[0] for text in texts if text[0] in 'PF'] == ['P', 'F']
    path.write_bytes(journal(*(text for text in texts if has_end or text[0] != 'F')))
    before = everything_but(place, place / 'mnt', stage_of(output))
    assert 'use -o overwrite' in weightfs(source, place / 'mnt', '-f', '-o', 'output=%s' % output, code=8).error
    for verb in ['--publish'], ['--resume']:
        error = weightfs('recover', output, *verb, '--source', source, code=9).error
        assert 'use --options=overwrite' in error or ('no commit was interrupted' in error and verb == ['--resume'])
    assert everything_but(place, place / 'mnt', stage_of(output)) == before
    mnt = mount(source, 'output=%s' % output, 'overwrite', at=place / 'mnt').allow('shown again')
    assert (mnt / 'w').read_bytes() == b'9abc'
    die(mnt)
    weightfs('recover', output, '--publish', '--source', source, '--options=overwrite')
    assert st.read(output).tensors['w'][2] == b'9abc' and not stage_of(output).exists()


@pytest.mark.parametrize('name', ['journal', 'data/1'])
@pytest.mark.parametrize('link', [os.link, os.symlink], ids=['hard', 'symbolic'])
def test_what_is_written_to_has_no_other_name(mount, place, left, name, link):
    for victim in ('home/line', 'home/notes'):
        path = stage_of(left) / name
        path.unlink()
        link(place / victim, path)
        before = everything_but(place, stage_of(left), place / 'mnt')
        if name == 'journal':
            (place / 'mnt').mkdir(exist_ok=True)
            weightfs(place / 'given/source.safetensors', place / 'mnt', '-f', '-o', 'output=%s' % left, code=8)
        else:
            mnt = mount(place / 'given/source.safetensors', 'output=%s' % left, at=place / 'mnt').allow('')
            with pytest.raises(OSError), open(mnt / 'w', 'r+b', buffering=0) as file:
                file.write(b'xy')
            die(mnt)
        assert everything_but(place, stage_of(left), place / 'mnt') == before


@pytest.mark.parametrize('name', ['data', 'source', 'source/model.safetensors'])
def test_no_link_in_a_staging_directory_is_followed(place, left, name):
    path = stage_of(left) / name
    if path.exists():
        path.rename(path.with_name('aside'))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.symlink_to(place / 'home' if '/' not in name else place / 'home/model.safetensors')
    before = everything_but(place, stage_of(left))
    for command in attempts(place, left):
        weightfs(*command, code=9)
        assert everything_but(place, stage_of(left)) == before, command


USER = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason='needs two users')
@pytest.mark.parametrize('how', ['file', 'missing', 'directory', 'stage', 'rw'])
@pytest.mark.parametrize('owner, mode, is_followed', [(USER, 0o1777, False), (0, 0o1777, True), (USER, 0o755, True)])
def test_no_link_of_another_user_is_followed_in_a_sticky_directory(place, owner, mode, is_followed, how):
    """By no verb that writes: not at the end of the path and not on the way."""
    sticky, source, target = place / 'sticky', place / 'given/source.safetensors', place / 'home'
    sticky.mkdir()
    sticky.chmod(mode)
    link = sticky / 'link.safetensors'
    names = {'file': 'model.safetensors', 'missing': 'new.safetensors', 'rw': 'model.safetensors'}
    link.symlink_to(target / names[how] if how in names else target)
    os.lchown(link, owner, owner)
    (place / 'mnt').mkdir()
    output = link if how in names else link / 'new.safetensors' if how == 'directory' else place / 'given/new.safetensors'
    words = {'rw': ['rw'], 'stage': ['output=%s' % output, 'stage=%s' % link]}.get(how, ['output=%s' % output])
    before = everything_but(place, place / 'mnt')
    command = [link if how == 'rw' else source, place / 'mnt', '-o', ','.join([*words, 'overwrite'])]
    if is_followed:
        weightfs(*command)
        weightfs('umount', place / 'mnt')
        return
    assert 'symbolic link of another user' in weightfs(*command, code=8).error
    more = ['--stage', link] if how == 'stage' else []
    assert 'symbolic link of another user' in weightfs('recover', output, *more, '--discard', code=9).error
    if how != 'stage':
        assert 'symbolic link of another user' in weightfs('convert', '--overwrite', source, output, code=9).error
    assert everything_but(place, place / 'mnt') == before
