# SPDX-License-Identifier: MIT
"""Every file of other programs, converted without any edit into each of the formats: the same tensors come out, read by readers
that share no code with our program; what a format has no room for is refused by name."""
import pytest

from wfs_testlib import burnpack, round_trip, shared
from wfs_testlib.program import EXIT_COMMIT, EXIT_DONE, EXIT_UNSUPPORTED, weightfs

pytestmark = pytest.mark.usefixtures('need_shared')

# Tensors without data, a key that is no UTF-8.
UNWRITABLE = {'meta.pth', 'zip-missing-storage.pth', 'zip-short-storage.pth', 'surrogate-key.pth'}
SOURCES = round_trip.sources()


def check_same_format(source, target, tensors):
    if source.ending == 'pth':
        round_trip.compare_pth(target, tensors)
    else:
        round_trip.compare(target, tensors)
    if source.is_canonical():
        assert target.read_bytes() == source.path.read_bytes()


@pytest.mark.parametrize('source', shared.each(SOURCES, lambda source: source.name.replace('/', '-')))
def test_nothing_is_lost_in_any_of_the_formats(folder, source):
    tensors = source.tensors()
    nul = [key for key in tensors if '\0' in key]
    if nul:
        assert 'NUL' in weightfs('convert', source.path, folder / 'out.pth', code=EXIT_UNSUPPORTED).error
        return
    for ending in round_trip.ENDINGS:
        target = folder / ('out.' + ending)
        done = weightfs('convert', source.path, target, code=None)
        missing = round_trip.without_room(tensors, ending) if ending != source.ending else []
        if done.code != EXIT_DONE:
            assert done.code == EXIT_COMMIT and not target.exists() and 'internal error' not in done.error
            assert any("'%s'" % key in done.error for key in missing) or source.path.name in UNWRITABLE, done.error
        elif ending == source.ending:
            check_same_format(source, target, tensors)
        else:
            assert not missing
            round_trip.compare(target, tensors)
            numbers = burnpack.read(target).scalars if ending == 'bpk' else {}
            assert ending == 'pth' or set(source.values) <= set(numbers) or 'left out' in done.stdout


def test_there_are_files_that_come_back_byte_for_byte():
    """The test above is worth something: most of the files are such as the newest libraries write."""
    canonical = [source for source in SOURCES if source.ending != 'pth' and source.is_canonical()]
    assert len(canonical) > len([source for source in SOURCES if source.ending != 'pth']) / 2
