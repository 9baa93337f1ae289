# SPDX-License-Identifier: MIT
"""Shared mappings and O_DIRECT: of generated files, which change by themselves, and of tensors and values."""
import contextlib
import csv
import errno
import io
import json
import mmap
import os
import re

import pytest

from wfs_testlib import program, pth, st
from wfs_testlib.look import set_attribute

KINDS = ['tensors.csv', 'status.json', 'metadata.json', 'report.txt', 'report.json', 'plan.tsv', 'out/model.safetensors', 'out/model.bpk',
         'out/model.pth', 'out/model.mpk']
LONG = 'name_' * 40


def direct(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 1 << 20)
        return buffer[:os.preadv(fd, [buffer], 0)]
    finally:
        os.close(fd)


class Opened:
    """A file that is open and mapped for as long as this lives."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_RDONLY)
        self.pages = mmap.mmap(self.fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)

    def content(self):
        """What everyone finds who looks through it; all ways have to agree."""
        data = os.pread(self.fd, 1 << 20, 0)
        assert self.pages[:] == data and os.fstat(self.fd).st_size == len(data)
        return data

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.pages.close()
        os.close(self.fd)


@pytest.fixture
def held(mount):  # pylint: disable=unused-argument  # closed before the mount is
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(Opened(path))


def content(path):
    """What everyone finds who opens the file now."""
    with Opened(path) as opened:
        data = opened.content()
    with open(path, 'rb') as file:
        assert file.read() == data
    assert direct(path) == data and os.stat(path).st_size == len(data)
    return data


def by_another(function):
    """Runs it in another process, to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:  # pylint: disable=broad-except
            os.write(2, repr(error).encode())
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize('is_writable', [False, True])
def test_generated_files_are_mapped(mount, small, folder, is_writable):
    mnt = mount(small, *['output=%s' % (folder / 'out.safetensors')] * is_writable)
    for name in KINDS:
        assert len(content(mnt / '.weightfs' / name)) > 1, name
    assert content(mnt / '.weightfs/out/model.safetensors') == small.read_bytes()


def keys(mnt):
    return {row['key'] for row in csv.DictReader(io.StringIO(content(mnt / '.weightfs/tensors.csv').decode()))}


def keys_out(mnt, folder):
    (folder / 'copy').write_bytes(content(mnt / '.weightfs/out/model.safetensors'))
    return set(st.read(folder / 'copy').tensors)


KEYS = {'a.b.weight', 'a.b.bias', 'a.c', 'step', 'none'}


@pytest.mark.parametrize('name', ['tensors.csv', 'out/model.safetensors'])
def test_an_edit_by_another_process_is_in_what_is_opened_next(mount, held, small, folder, name):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    older = []
    now, wanted = 'step', KEYS
    for new in (LONG, 'x', 'y', 'step'):  # grows, shrinks, keeps its size, and is what it was
        opened = held(mnt / '.weightfs' / name)
        older.append((opened, opened.content()))
        by_another(lambda src=now, dst=new: os.rename(mnt / src, mnt / dst))
        wanted = wanted - {now} | {new}
        now = new
        assert keys(mnt) == wanted and keys_out(mnt, folder) == wanted
        for opened, data in older:
            assert opened.content() == data
    assert older[0][1] == content(mnt / '.weightfs' / name) or name == 'tensors.csv'  # which says "renamed"


def test_a_status_that_is_open_stays_and_the_next_one_is_new(mount, held, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    older = []
    for state, change in (('clean', lambda: (mnt / 'a/c').write_bytes(b'HELLO')), ('dirty', mnt.commit),
                          ('published', lambda: os.rename(mnt / 'a/c', mnt / 'a' / LONG)), ('dirty', mnt.commit), ('published', lambda: None)):
        opened = held(mnt / '.weightfs/status.json')
        older.append((opened, opened.content()))
        assert json.loads(older[-1][1])['state'] == state
        by_another(change)
        for opened, data in older:
            assert opened.content() == data


@pytest.mark.parametrize('name, has_commit', [('report.json', lambda text: json.loads(text)['commit'] is not None),
                                              ('report.txt', lambda text: b'committed to:' in text)])
def test_the_report_of_a_commit_is_in_what_is_opened_next(mount, held, small, folder, name, has_commit):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    opened = held(mnt / '.weightfs' / name)
    data = opened.content()
    (mnt / 'a/c').write_bytes(b'HELLO')
    by_another(mnt.commit)
    assert opened.content() == data
    assert not has_commit(data) and has_commit(content(mnt / '.weightfs' / name))


def replace(path, text):
    (path.parent / 'new').write_text(text)
    os.rename(path.parent / 'new', path)


@pytest.mark.parametrize('change', [
    lambda mnt, name, value: set_attribute(mnt.path, 'metadata.' + name, value),
    lambda mnt, name, value: (mnt / '.weightfs/metadata.json').write_text(json.dumps({name: value})),
    lambda mnt, name, value: replace(mnt / '.weightfs/metadata.json', json.dumps({name: value})),
], ids=['attribute', 'write', 'rename'])
def test_metadata_is_new_in_what_is_opened_next(mount, held, small, folder, change):
    path = mount(small, 'output=%s' % (folder / 'out.safetensors')) / '.weightfs/metadata.json'
    mnt = path.parent.parent
    assert json.loads(content(path))['by'] == 'a test'
    for value in ('a short one', 'long ' * 2000, 'brief', 'equal', 'sized'):
        opened = held(path)
        assert opened.content()
        by_another(lambda text=value: change(Root(mnt), 'by', text))
        assert json.loads(content(path))['by'] == value
    set_attribute(mnt, 'metadata.by', 'the last')
    assert json.loads(content(path))['by'] == 'the last'


class Root:
    """A mount by its path, for what runs in another process."""

    def __init__(self, path):
        self.path = path

    def __truediv__(self, name):
        return self.path / name


def test_metadata_that_was_removed_is_found_when_an_attribute_makes_it_again(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    path = mnt / '.weightfs/metadata.json'
    path.unlink()
    assert not path.exists()
    set_attribute(mnt.path, 'metadata.by', 'another')
    assert json.loads(content(path)) == {'by': 'another'}
    assert 'metadata.json' in os.listdir(mnt / '.weightfs')


def test_a_changed_source_shows_in_the_status_of_a_read_only_mount(mount, held, small):
    mnt = mount(small).allow('has changed since it was mounted')
    opened = held(mnt / '.weightfs/status.json')
    data = opened.content()
    assert json.loads(data)['sources'][0]['state'] == 'ok'
    with open(small, 'ab') as file:
        file.write(b'more')
    with pytest.raises(OSError):
        (mnt / 'a/c').read_bytes()
    assert json.loads(content(mnt / '.weightfs/status.json'))['sources'][0]['state'] == 'changed'
    assert opened.content() == data


N_RENAMES = 300


def rename_on_and_on(mnt, done):
    """Names grow and shrink; how many renames have returned is in the file."""
    now = 'step'
    for i in range(1, N_RENAMES + 1):
        new = 'k%d_%s' % (i, 'x' * (i * 37 % 200))
        os.rename(mnt / now, mnt / new)
        now = new
        os.pwrite(done, i.to_bytes(8, 'little'), 0)


@pytest.mark.parametrize('name', ['tensors.csv', 'out/model.safetensors'])
def test_no_text_is_older_than_a_change_before_it_was_opened(mount, small, folder, name):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    done = os.open(folder / 'done', os.O_RDWR | os.O_CREAT)
    os.pwrite(done, bytes(8), 0)
    pid = os.fork()
    if pid == 0:
        try:
            rename_on_and_on(mnt, done)
            os._exit(0)
        finally:
            os._exit(1)
    n_read = n_renamed = 0
    while n_renamed < N_RENAMES:
        n_renamed = int.from_bytes(os.pread(done, 8, 0), 'little')
        try:
            with Opened(mnt / '.weightfs' / name) as opened:
                data = opened.content()
        except OSError as error:  # it is read while it is made, and has changed again
            assert error.errno == errno.ESTALE and name != 'tensors.csv'
            continue
        shown = [int(number) for number in re.findall(rb'[",\n]k(\d+)_', data)]
        assert len(shown) == 1 or (n_renamed == 0 and not shown)
        assert not shown or shown[0] >= n_renamed
        n_read += 1
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert n_read > 0


@pytest.mark.parametrize('files', ['raw', 'npy'])
def test_tensors_and_values_are_mapped_and_read_directly(mount, held, folder, files):
    source = folder / 'in.pth'
    data = st.f32(*range(4096))
    source.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(of=pth.storage(numel=4096), size=(4096,)), epoch=pth.number(7)), r0=data))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'), 'files=%s' % files)
    tensor = mnt / ('w.npy' if files == 'npy' else 'w')
    n_header = os.stat(tensor).st_size - len(data)
    opened = held(tensor)
    assert content(tensor)[n_header:] == data and content(mnt / 'epoch.json').strip() == b'7'

    def change():
        with open(tensor, 'r+b') as file:
            file.seek(n_header + 5000)
            file.write(b'ABCDE')
        (mnt / 'epoch.json').write_bytes(b'123456\n')
    by_another(change)
    wanted = data[:5000] + b'ABCDE' + data[5005:]
    assert content(tensor)[n_header:] == wanted and opened.content()[n_header:] == wanted
    assert content(mnt / 'epoch.json') == b'123456\n'
    by_another(lambda: (mnt / 'epoch.json').write_bytes(b'8'))
    assert content(mnt / 'epoch.json') == b'8'


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='sanitizers keep what is freed')
def test_old_versions_are_forgotten(mount, small, folder):
    """What a version takes is given back when nobody has it open any more."""
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))

    def kib():
        worker = mnt.workers_now()[0]
        with open('/proc/%d/statm' % worker, encoding='ascii') as file:
            return int(file.read().split()[1]) * 4
    names = ['n%d_%s' % (i, 'x' * 200) for i in range(300)]
    for name in names:
        os.link(mnt / 'a/c', mnt / name)
    before = kib()
    for i in range(100):  # texts of 60 KiB
        os.rename(mnt / names[0], mnt / ('m%d' % i))
        assert len(content(mnt / '.weightfs/tensors.csv')) > 60000
        os.rename(mnt / ('m%d' % i), mnt / names[0])
    assert kib() - before < 4096
