# SPDX-License-Identifier: MIT
"""A mount that nobody edits, committed into each of the formats: the file is what `convert` makes of the source, too."""
import pytest

from wfs_testlib import round_trip, shared

pytestmark = pytest.mark.usefixtures('need_shared')

CHOSEN = ['corpus/burn/mnist.safetensors', 'golden/safetensors/ranks.safetensors', 'golden/safetensors/scalars.safetensors', 'lightning.ckpt', 'tied.pth', 'views.pth',
          'legacy-views.pth', 'module.pth', 'golden/burn/burnpack/v0.22.1/zoo-f32.bpk', 'golden/burn/burnpack/v0.22.1/shapes.bpk',
          'golden/burn/burnpack/v0.22.1/ids.bpk']
SOURCES = [source for source in round_trip.sources() if source.name in CHOSEN]


@pytest.mark.parametrize('ending', round_trip.ENDINGS)
@pytest.mark.parametrize('source', shared.each(SOURCES, lambda source: source.name.replace('/', '-')))
def test_a_commit_without_edits_has_the_same_tensors(mount, folder, source, ending):
    target = folder / ('out.' + ending)
    mnt = mount(source.path, 'output=%s' % target)
    mnt.commit()
    if ending == 'pth' == source.ending:
        round_trip.compare_pth(target, source.tensors())
    else:
        round_trip.compare(target, source.tensors())
    if ending == source.ending and source.is_canonical():
        assert target.read_bytes() == source.path.read_bytes()
