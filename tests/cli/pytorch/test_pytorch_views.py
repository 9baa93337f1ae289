# SPDX-License-Identifier: MIT
"""Every .pth of other programs, written again as a .pth under views that rename and remove: the right tensors are in it, or a
sentence says which one cannot be and why. Read back by a reader of our own and by one that shares no code with it."""
import re

import pytest

from wfs_testlib import pth_expected, round_trip, shared
from wfs_testlib.program import EXIT_COMMIT, EXIT_DONE, listing, weightfs

pytestmark = pytest.mark.usefixtures('need_shared')

# Tensors without data, scales that a quantized tensor cannot be without, objects that several others use, keys that are tensors.
NOT_ALWAYS = {'meta.pth', 'zip-missing-storage.pth', 'zip-short-storage.pth', 'quantized.pth', 'quantized-quint4x2.pth',
              'legacy-quantized.pth', 'dtensor.pth', 'optimizer-object.pth'}
# Tensors that are attributes of others; elsewhere a key that begins with another one is just a key.
ATTRIBUTES = {'parameter-attributes.pth', 'quantized.pth', 'quantized-quint4x2.pth', 'legacy-quantized.pth'}
FILES = [file for file in pth_expected.files() if file[1].name not in pth_expected.UNREAD]


def views(first, last, has_all):
    """{name: (options, what becomes of a key; None: it is removed)}."""
    def replaced(pattern, text):
        return ['--remap', '%s=>%s' % (pattern, text)], lambda key: re.sub(pattern, text, key)
    this, that = '^%s$' % re.escape(first), '^%s$' % re.escape(last)
    result = {
        'prefix': replaced('^', 'x.'),
        'without the first': (['--exclude', this], lambda key: None if key == first else key),
        'the last renamed': replaced(that, 'renamed.leaf'),
        'only the first': (['--key', first], lambda key: key if key == first else None),
    }
    return result if not has_all else {
        **result,
        'without the last': (['--exclude', that], lambda key: None if key == last else key),
        'the first renamed': replaced(this, 'zz'),
        'only the last': (['--key', last], lambda key: key if key == last else None),
        'flat': replaced('[.]', '_'),
        'letters': replaced('a', 'b.c'),
    }


def with_attributes(keys, rename, selects):
    """The same for attributes of tensors too: where the view says nothing of the attribute, it goes where its tensor goes."""
    def fate(key):
        base = max((other for other in keys if key.startswith(other + '.')), key=len, default=None)
        if base is None or rename(key) != (None if selects else key):
            return rename(key)
        above = fate(base)
        return None if above is None else above + key[len(base):]
    return fate


def facts(name, source, expected, rename):
    """{new key: (dtype, shape, sha256 or None)} of what is to be in the file."""
    known = {key: entry for key, entry in expected.get('tensors', {}).items() if (name, key) not in pth_expected.NOT_THE_SAME}
    return {rename(key): (entry['dtype'], entry['shape'], known.get(key, {}).get('sha256'))
            for key, entry in source.items() if rename(key) is not None}


def compare(path, wanted):
    """What we read, and what the other reader does."""
    found = listing(path)
    assert {key: (entry['dtype'], entry['shape']) for key, entry in found.items()} == {
        key: entry[:2] for key, entry in wanted.items()}
    round_trip.compare_pth(path, wanted)


@pytest.mark.parametrize('file', shared.each(FILES, lambda file: file[0].replace('/', '-')))
def test_a_view_is_written_or_refused_with_a_reason(folder, file):
    name, path, expected = file
    source = listing(path)
    if name == 'surrogate-key.pth' or not source:
        pytest.skip('has no tensors, or a key that no pattern can match')
    keys = list(source)
    for view, (options, rename) in views(keys[0], keys[-1], path.parent.name == 'torch').items():
        if path.name in ATTRIBUTES:
            rename = with_attributes(keys, rename, view.startswith('only'))
        wanted = facts(name, source, expected, rename)
        if not wanted or len(wanted) < sum(rename(key) is not None for key in keys):
            continue
        target = folder / 'out.pth'
        done = weightfs('convert', '--overwrite', *options, path, target, code=None, has_notices=True)
        if done.code != EXIT_DONE:
            assert done.code == EXIT_COMMIT and path.name in NOT_ALWAYS, (view, done.stderr)
            assert 'internal error' not in done.error, view
            continue
        compare(target, wanted)
