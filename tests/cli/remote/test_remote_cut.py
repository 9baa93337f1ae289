# SPDX-License-Identifier: MIT
"""Files on a server that end too early: as the local ones, tensor by tensor."""
import re

import pytest

from wfs_testlib import cuts
from wfs_testlib.program import EXIT_DAMAGED, weightfs


@pytest.mark.parametrize('name', ['safetensors', 'legacy-pt', 'bpk', 'gguf', 'set', 'dcp'])
@pytest.mark.parametrize('place', ['last', 'all'])
def test_they_are_read_as_local_ones(serve, folder, name, place):
    source, _, cut = cuts.cut(name, folder, place)
    url = serve(folder).url(source.relative_to(folder)) + ('/' if source.is_dir() else '')
    if name != 'dcp':
        assert 'trunc' in (error := weightfs('ls', url, code=EXIT_DAMAGED).error) or 'ends' in error
    for verb in ['sum'], ['show'], ['extract', '-d']:
        found = []
        for given, out in (source, 'local'), (url, 'remote'):
            target = [folder / out] if len(verb) > 1 else []
            done = weightfs(verb[0], '--force', given, *verb[1:], *target, code=EXIT_DAMAGED, n_errors=len(cut))
            assert re.findall(r"tensor '([^']*)': ", done.stderr) == cut
            files = {str(path.relative_to(target[0])): path.read_bytes() for path in target[0].rglob('*.npy')} if target else done.stdout.splitlines()[verb[0] == 'sum':]
            found.append((done.stderr.replace(str(given), 'SOURCE'), files))
        assert found[0] == found[1]
