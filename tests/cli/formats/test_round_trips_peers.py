# SPDX-License-Identifier: MIT
"""Every file of other programs, converted without any edit and read by torch and the safetensors package of this system."""
import json
import os
import pickletools
import zipfile

import pytest

from wfs_testlib import program, round_trip, shared, with_torch
from wfs_testlib.program import EXIT_DONE, weightfs

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures('need_shared')]
READER = program.ROOT / 'tests' / 'wfs_testlib' / 'read_peers.py'
LATE = {'U16', 'U32', 'U64', 'F4', 'C32'}  # and all of eight bits: types that not every torch has
# The torch of Debian 12 takes these for little-endian; programs become plain dicts.
OTHERWISE = {'big-endian.pth', 'burn/zip-bigendian-mark.pth', 'lite.ptl', 'script.pt'}
NOT_KNOWN = {'F6_E2M3', 'F6_E3M2'}  # to any torch


def read_all(folder, **options):
    """{name of a file: {key: facts}, or the error} by one run of the libraries."""
    return dict(json.loads(line) for line in with_torch.run(READER, folder, WFS_TORCH=json.dumps(options)).splitlines())


def is_late(tensors):
    return any(dtype in LATE | NOT_KNOWN or dtype.startswith('F8') for dtype, _, _ in tensors.values())


def convert_all(folder, ending, chosen):
    """[(source, name of the file that came of it)]"""
    made = []
    for i, source in enumerate(chosen):
        name = '%03d.%s' % (i, ending)
        if weightfs('convert', source.path, folder / name, code=None).code == EXIT_DONE:
            made.append((source, name))
    return made


def has_float(path):
    """Is there a number in the pickle that the restricted unpickler of old does not take?"""
    with zipfile.ZipFile(path) as archive:
        return any(opcode.name == 'BINFLOAT' for opcode, _, _ in pickletools.genops(archive.read('archive/data.pkl')))


def judge(path, told, tensors):
    """What is wrong with what a library read; None: nothing."""
    if isinstance(told, str):
        return None if is_late(tensors) or (path.suffix == '.pth' and has_float(path)) else told
    wanted = {key: [dtype, list(shape), digest] for key, (dtype, shape, digest) in tensors.items()}
    if set(told) != set(wanted):
        return 'other keys'
    wrong = [key for key, facts in wanted.items() if told[key][:2] != facts[:2] or facts[2] not in (None, told[key][2])]
    return 'other content of %r' % wrong[:3] if wrong else None


@pytest.mark.parametrize('ending', ['safetensors', 'pth'])
def test_the_libraries_read_what_is_made_of_other_formats(folder, ending):
    made = convert_all(folder, ending, [source for source in round_trip.sources() if source.ending != 'pth' or ending != 'pth'])
    told = read_all(folder, **({'weights_only': True} if ending == 'pth' else {}))
    problems = {source.name: judge(folder / name, told[name], source.tensors()) for source, name in made}
    assert {name: problem for name, problem in problems.items() if problem} == {} and len(made) > 200


def test_torch_reads_what_is_made_of_its_own_files_as_it_reads_those(folder):
    """All but names of records and such is the same, so it takes what it takes and refuses what it refuses."""
    before, after = folder / 'before', folder / 'after'
    before.mkdir()
    after.mkdir()
    sources = [source for source in round_trip.sources() if source.ending == 'pth']
    made = convert_all(after, 'pth', sources)
    for source, name in made:
        os.symlink(source.path, before / name)
    source_told, told = read_all(before, weights_only=True), read_all(after, weights_only=True)
    better, worse = 0, {}
    for source, name in made:
        if isinstance(source_told[name], str):
            better += not isinstance(told[name], str)
        elif told[name] != source_told[name]:
            worse[source.name] = told[name]
    assert set(worse) <= OTHERWISE and better < len(made) / 4
