# SPDX-License-Identifier: MIT
"""What a commit says of itself: report.json, report.txt, status, and the one line of the verbs."""
import json

import pytest

from wfs_testlib import burnpack, pth, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_USAGE, weightfs

FILES = {'safetensors': 'out.safetensors', 'burnpack': 'out.bpk', 'pytorch': 'out.pth'}


@pytest.fixture
def trained(folder):
    """Two tied names, a tensor of its own, and twelve values."""
    path = folder / 'trained.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(
        model=pth.dictionary(**{'a.w': pth.tensor(), 'b.w': pth.tensor(), 'part': pth.tensor(size=(2,))}),
        **{'value%02d' % i: pth.text('v') for i in range(12)})))
    return path


def report_of(mounted):
    return json.loads((mounted / '.weightfs/report.json').read_text())


def text_of(mounted):
    return (mounted / '.weightfs/report.txt').read_text()


def test_before_a_commit_there_is_none(mount, trained, folder):
    mounted = mount(trained, 'output=%s' % (folder / 'out.bpk'))
    assert report_of(mounted)['commit'] is None and report_of(mounted)['left_out'] == []
    assert 'committed' not in text_of(mounted) and mounted.status()['written'] is None
    assert 'never' in weightfs('status', mounted.path).stdout


@pytest.mark.parametrize('name', FILES)
def test_a_commit_is_told_in_each_place(mount, trained, folder, name):
    output = folder / FILES[name]
    mounted = mount(trained, 'output=%s' % output)
    assert report_of(mounted)['commit'] is None  # it is made anew after the commit
    (mounted / 'model/part').rename(mounted / 'model/whole')
    line = weightfs('commit', mounted.path).stdout
    report, n_bytes = report_of(mounted), output.stat().st_size
    commit = report['commit']
    assert commit.pop('at') == mounted.status()['committed_at']
    assert commit == {'output': str(output), 'edits': 1, 'tensors': 3, 'files': 1, 'bytes': n_bytes}
    left_out = [] if name == 'pytorch' else ['value%02d' % i for i in range(12)]
    assert [(x['kind'], x['name']) for x in report['left_out']] == [('value', key) for key in left_out]
    kinds = 'tensors, numbers and' if name == 'burnpack' else 'tensors and'
    assert all(x['why'] == '%s can store only %s metadata' % (name, kinds) for x in report['left_out'])
    told = '1 edit: 3 tensors, %d bytes' % n_bytes + ('; left out: 12 values' if left_out else '')
    assert line == "committed to '%s': %s\n" % (output, told)
    assert mounted.status()['written'] == told
    status = weightfs('status', mounted.path).stdout
    assert 'written' in status and told in status
    text = text_of(mounted)
    assert 'committed to: %s\n' % output in text and 'left out: %d\n' % len(left_out) in text
    assert ('  and 2 more\n' in text) == bool(left_out)
    assert [key for key in left_out if key in text] == left_out[:10]
    assert weightfs('commit', mounted.path).stdout == 'nothing to commit\n'


@pytest.mark.parametrize('options, told, left_out', [
    (['ties=drop'], '; left out: 12 values, 1 tied name', ['model.b.w']),
    (['values=metadata'], '; in metadata: 12 values', []),
    (['ties=drop', 'values=metadata'], '; left out: 1 tied name; in metadata: 12 values', ['model.b.w']),
])
def test_options_of_ties_and_values_are_told(mount, trained, folder, options, told, left_out):
    mounted = mount(trained, 'output=%s' % (folder / 'out.safetensors'), *options)
    assert weightfs('commit', mounted.path).stdout.endswith('bytes%s\n' % told)
    assert [x['name'] for x in report_of(mounted)['left_out'] if x['kind'] == 'tie'] == left_out
    assert ('value' in {x['kind'] for x in report_of(mounted)['left_out']}) == ('values' in told.split('; in')[0])


def test_metadata_has_no_room_in_a_pth(mount, small, folder):
    mounted = mount(small, 'output=%s' % (folder / 'out.pth'))
    assert weightfs('commit', mounted.path).stdout.endswith('; left out: 2 metadata texts\n')
    assert sorted((x['kind'], x['name']) for x in report_of(mounted)['left_out']) == [('metadata', 'by'), ('metadata', 'format')]


@pytest.mark.parametrize('name', ['out.safetensors', 'out.pth', 'out.bpk'])
def test_parameter_ids_have_room_in_a_burnpack_only(mount, folder, name):
    pack = burnpack.Burnpack({key: burnpack.Tensor('F32', [1], bytes(4), param_id) for key, param_id in (('a', 7), ('b', None))}, {})
    burnpack.write(folder / 'in.bpk', pack)
    mounted = mount(folder / 'in.bpk', 'output=%s' % (folder / name))
    line = weightfs('commit', mounted.path).stdout
    left_out = [] if name == 'out.bpk' else ['a']
    assert ('1 parameter id\n' in line) == bool(left_out)
    assert [x['name'] for x in report_of(mounted)['left_out'] if x['kind'] == 'param_id'] == left_out


def test_a_set_is_told_with_its_files(mount, folder):
    weight_map = {}
    for i in (1, 2, 3):
        name = 'model-%05d-of-00003.safetensors' % i
        st.write(folder / name, {'layer%d.w' % i: ('F32', [10], st.f32(*range(10)))})
        weight_map['layer%d.w' % i] = name
    index = folder / 'model.safetensors.index.json'
    index.write_text(json.dumps({'weight_map': weight_map}))
    mounted = mount(index, 'rw')
    (mounted / 'layer2/w').write_bytes(st.f32(*range(1, 11)))
    line = weightfs('commit', mounted.path).stdout
    assert line.startswith("committed to '%s': 1 edit: 3 tensors, " % index) and line.endswith(' in 3 files\n')
    commit = report_of(mounted)['commit']
    assert (commit['output'], commit['files'], commit['tensors']) == (str(index), 3, 3)
    (mounted / 'layer3/w').unlink()
    weightfs('commit', mounted.path)
    assert (report_of(mounted)['commit']['files'], report_of(mounted)['commit']['tensors']) == (2, 2)


def test_values_have_no_room_in_a_set(mount, trained, folder):
    mounted = mount(trained, 'output=%s/' % (folder / 'set'))
    assert '; left out: 12 values' in weightfs('commit', mounted.path).stdout
    left_out = report_of(mounted)['left_out']
    assert len(left_out) == 12 and {x['why'] for x in left_out} == {'a set of files can store only tensors and metadata'}


def test_sync_and_an_unmount_leave_the_same_report(mount, small, folder):
    mounted = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    (mounted / 'a/c').unlink()
    mounted.commit()
    assert report_of(mounted)['commit']['tensors'] == 4
    (mounted / 'step').unlink()
    line = weightfs('umount', mounted.path).stdout
    assert line.startswith("committed to '%s': 1 edit: 3 tensors, " % (folder / 'out.safetensors'))
    mounted.wait()
    assert weightfs('umount', mount(small).path).stdout == ''


def test_a_commit_that_fails_leaves_the_report_of_the_last_one(mount, small, folder):
    mounted = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    (mounted / 'a/c').unlink()
    mounted.commit()
    before, written = report_of(mounted), mounted.status()['written']
    (mounted / 'odd').write_bytes(b'abc')
    mounted.allow('cannot commit')
    weightfs('commit', mounted.path, code=EXIT_COMMIT)
    assert report_of(mounted) == before and mounted.status()['written'] == written
    (mounted / 'odd').unlink()


def test_a_plan_tells_what_a_format_has_no_room_for(trained):
    def left_out(*options):
        return [x['name'] for x in json.loads(weightfs('plan', '--json', *options, trained).stdout)['left_out']]
    assert left_out() == [] and left_out('--format', 'pytorch') == []
    assert left_out('--format=safetensors') == ['value%02d' % i for i in range(12)]
    assert 'left out: 12\n' in weightfs('plan', '--report', '--format=burnpack', trained).stdout
    assert "'zip'" in weightfs('plan', '--format=zip', trained, code=EXIT_USAGE).error


def test_both_spellings_have_the_same_parts(trained):
    report = json.loads(weightfs('plan', '--json', trained).stdout)
    assert list(report) == ['schema', 'applied', 'skipped', 'missing', 'unused', 'errors', 'renamed', 'adapted', 'cast', 'computed',
                            'covered', 'left_out', 'described', 'commit', 'notices', 'is_success']
