# SPDX-License-Identifier: MIT
"""A file of the control directory is one text for whoever has it open, however little is read at once."""
import json
import os

import pytest


def read_in_pieces(fd, n_bytes):
    pieces = []
    while piece := os.read(fd, n_bytes):
        pieces.append(piece)
    return b''.join(pieces)


@pytest.mark.parametrize('name', ['status.json', 'tensors.csv', 'report.txt', 'report.json', 'plan.tsv'])
@pytest.mark.parametrize('n_bytes', [1, 10])
def test_a_text_is_of_one_version(mount, sample, folder, name, n_bytes):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'), 'remap=^pooler=>drain')
    path = mnt / '.weightfs' / name
    old = path.read_bytes()
    fd = os.open(path, os.O_RDONLY)
    try:
        first = os.read(fd, 25)
        os.rename(mnt / 'temperature', mnt / 'heat_that_is_longer')
        mnt.commit()
        new = path.read_bytes()
        assert first + read_in_pieces(fd, n_bytes) == old
        assert os.pread(fd, len(old), 5) == old[5:]
    finally:
        os.close(fd)
    assert path.read_bytes() == new and (new != old or name == 'plan.tsv')


def test_readers_of_the_status_during_commits_find_a_whole_one(mount, sample, folder):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    pid = os.fork()
    if pid == 0:
        try:
            for i in range(20):
                os.rename(mnt / ('temperature' if i == 0 else 'heat%d' % (i - 1)), mnt / ('heat%d' % i))
                mnt.commit()
        finally:
            os._exit(0)
    n_read = 0
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        fd = os.open(mnt / '.weightfs/status.json', os.O_RDONLY)
        json.loads(read_in_pieces(fd, 3))
        os.close(fd)
        n_read += 1
    assert n_read > 0


def test_what_is_written_to_metadata_is_read_back_through_the_same_file(mount, sample, folder):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with open(mnt / '.weightfs/metadata.json', 'r+b', buffering=0) as file:
        assert json.loads(file.read()) is not None
        file.seek(0)
        file.truncate(0)
        file.write(b'{"by": "a test"}')
        file.seek(0)
        assert file.read() == b'{"by": "a test"}'
