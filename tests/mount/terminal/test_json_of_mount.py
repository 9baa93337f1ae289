# SPDX-License-Identifier: MIT
"""JSON of the verbs that write: every field is in docs/json.md, and every field of that is printed."""
import json
import os

import pytest

from wfs_testlib import json_page, piped, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_RULES, EXIT_SOURCE, tool, weightfs

COUNTS = ('n_edits', 'n_renamed', 'n_removed', 'n_added', 'n_replaced', 'n_changed', 'n_values', 'n_metadata')


@pytest.fixture
def place(folder):
    piped.write_sources(folder)
    return folder


@pytest.fixture
def printed(place):
    """What verbs print, as a shell would call them, and all fields that they have printed so far."""
    def run(words, code=0):
        verb, *others = words.split()
        found = json_page.printed(verb, *others, cwd=place, code=code)
        run.fields |= json_page.fields(found)
        return found
    run.fields = set()
    return run


def counts(found):
    return {name: found[name] for name in COUNTS if found[name] != 0}


def test_what_was_done(printed, place, mount):
    made = printed('convert a.pth new.safetensors')
    assert made['sources'] == [{'file': 'a.pth'}] and made['output'] == 'new.safetensors' and made['n_files'] == 1
    assert made['n_tensors'] == len(piped.TENSORS) and made['n_bytes'] == os.path.getsize(place / 'new.safetensors')
    assert [(item['kind'], item['name']) for item in made['left_out']] == [('value', 'optimizer'), ('value', 'epoch')]
    assert len(made['notices']) == 1 and "'optimizer', 'epoch'" in made['notices'][0]
    made = printed('convert --max-shard-size=30 a.safetensors new/')
    files = sorted((place / 'new').glob('*.safetensors'))
    assert made['output'] == 'new/model.safetensors.index.json' and made['n_files'] == len(files) > 1
    made = printed('edit a.safetensors e.safetensors --remove n --add s=s.npy --replace layer.10.weight=s.npy --set none.dtype=I32 --set-metadata x=y')
    assert counts(made) == {'n_edits': 5, 'n_removed': 1, 'n_added': 1, 'n_replaced': 1, 'n_changed': 1, 'n_metadata': 1} and made['left_out'] == []
    made = printed('extract a.safetensors layer.* -d out')
    written = [path for path in (place / 'out').rglob('*') if path.is_file()]
    assert made['output'] == 'out' and made['n_files'] == len(written) and made['n_bytes'] == sum(map(os.path.getsize, written))
    assert 'numpy' in made['notices'][0]
    made = printed('patch make a.safetensors b.safetensors p.safetensors')
    assert made['sources'] == [{'file': 'a.safetensors'}, {'file': 'b.safetensors'}] and made['output'] == 'p.safetensors'
    shown = printed('patch show p.safetensors')
    assert counts(shown) == counts(made) and shown['patch'] == json.loads(st.read(place / 'p.safetensors').metadata['weightfs.patch'])
    assert counts(printed('patch apply p.safetensors a.safetensors patched.safetensors')) == counts(made)
    refused = printed('patch apply p.safetensors a.bpk x.bpk', code=EXIT_RULES)
    assert set(refused) == {'schema', 'notices'} and all(line.startswith('does not fit: ') for line in refused['notices'])
    assert printed('patch apply --force p.safetensors a.bpk x.bpk')['n_refused'] == len(refused['notices'])
    check_a_mount(printed, place, mount(place / 'm.safetensors', 'output=%s' % (place / 'out.safetensors')).path)
    assert json_page.promised('convert') - printed.fields == set()


def check_a_mount(printed, place, mnt):
    output = str(place / 'out.safetensors')
    (mnt / 'n').unlink()
    tool('cp', place / 's.npy', mnt)
    trial = printed('commit --dry-run %s' % mnt)
    assert trial['output'] == output and not os.path.exists(output) and trial['n_edits'] == 2
    done = printed('commit %s' % mnt)
    assert done['n_bytes'] == os.path.getsize(output) and done['n_tensors'] == len(st.read(output).tensors) and done['n_files'] == 1
    same = ('mountpoint', 'n_edits', 'output', 'n_tensors', 'n_files', 'n_bytes')
    assert [trial[name] for name in same] == [done[name] for name in same] and done['text'].startswith('committed to ')
    status = printed('status %s' % mnt)
    assert [status[name] for name in ('output', 'n_tensors', 'n_files')] == [done[name] for name in ('output', 'n_tensors', 'n_files')]
    nothing = printed('commit %s' % mnt)
    assert nothing['output'] is None and nothing['n_edits'] == 0 and 'n_bytes' not in nothing
    (mnt / 'none').unlink()
    assert printed('discard --committed %s %s/n' % (mnt, mnt))['n_edits'] == 1
    ended = printed('umount %s' % mnt)
    assert ended['output'] == output and ended['n_tensors'] == len(st.read(output).tensors) and 'none' not in st.read(output).tensors


def test_status_and_its_edits(printed, place, mount):
    mounted = mount(place / 'm.safetensors', 'rw')
    mnt = mounted.path
    (mnt / 'n').unlink()
    (mnt / 'none').rename(mnt / 'nothing')
    tool('ln', mnt / 'layer/0/bias', mnt / 'again')
    os.setxattr(mnt / 'layer/1/bias', 'user.weightfs.dtype', b'F16')
    with open(mnt / 'layer/0/weight', 'r+b') as file:
        file.write(b'x')
    edits = printed('status --edits %s' % mnt)
    assert edits['changes'] == json.loads((mnt / '.weightfs/edits.json').read_text()) and edits['mountpoint'] == str(mnt)
    assert [change['change'] for change in edits['changes']].count('renamed') == 1
    printed('status')
    assert printed('status %s' % mnt)['edits'] == 5
    assert printed('umount --discard %s' % mnt)['n_edits'] == 5
    other = mount(place / 'a.pth', 'output=%s' % (place / 'x.pth')).path
    os.setxattr(other / 'layer/1/bias', 'user.weightfs.param_id', b'7')
    assert printed('status --edits %s' % other)['changes'][0]['attributes'] == ['param_id']
    assert printed('umount %s' % other)['n_edits'] == 1
    assert printed('status --watch %s' % (place / 'm.safetensors'))['output'] is None
    assert json_page.promised('status') - printed.fields == {'fetched', 'needed'}


def test_recover(printed, place, mount):
    source = place / 'm.safetensors'
    mounted = mount(source, 'rw', 'cast=F16')
    for words in ('cp ../s.npy gone', 'sync gone; rm gone', 'rm n', 'mv none nothing', 'ln nothing more', 'mkdir d', 'cp ../s.npy .', 'sync s.npy'):
        tool('sh', '-ec', words.replace('../', '%s/' % place), cwd=mounted.path)
    os.setxattr(mounted.path / 'layer/1/bias', 'user.weightfs.dtype', b'BF16')
    mounted.kill()
    found = printed('recover .', code=EXIT_COMMIT)
    (left,) = found['leftovers']
    assert left['sources'] == [{'file': str(source)}] and left['output'] == str(source) and left['options'] == ['cast=F16']
    assert left['stage'].startswith(str(place)) and left['commit'] == 'none' and left['failure'] is None
    changes = {change['change']: change for change in left['changes']}
    assert changes['removed'] == {'change': 'removed', 'path': 'n'} and changes['renamed'] == {'change': 'renamed', 'path': 'none', 'to': 'nothing'}
    assert {'change': 'content', 'path': 's.npy', 'bytes': os.path.getsize(place / 's.npy')} in left['changes'] and left['n_edits'] >= 6
    assert {'change': 'content', 'path': 'gone', 'bytes': None} in left['changes']
    done = printed('recover --publish --options cast=F16 m.safetensors')
    assert done['output'] == str(source) and done['n_bytes'] == os.path.getsize(source) and done['stage'] == left['stage']
    assert printed('recover m.safetensors')['leftovers'] == []
    assert json_page.promised('recover') - printed.fields == {'bad_record'}


def test_cache(printed, place, serve, folder):
    server = serve(place)
    url = server.url(place / 'a.safetensors')
    weightfs('sum', '--cache', 'kept', url, cwd=place)
    assert set(printed('cache list kept')['files'][0]) == {'file', 'bytes', 'cached', 'opened_at'}
    (kept,) = printed('cache verify kept')['files']
    assert kept['file'].startswith('http') and kept['n_damaged'] == 0 and 0 < kept['cached'] <= kept['bytes'] == os.path.getsize(place / 'a.safetensors')
    assert printed('cache clear kept') == {'schema': 1, 'cache': 'kept', 'notices': []}
    assert json_page.promised('cache') - printed.fields == set()


@pytest.mark.parametrize('words, code', [('convert nosuch x.pth', EXIT_SOURCE), ('edit nosuch x.pth', EXIT_SOURCE), ('extract -d out nosuch', EXIT_SOURCE),
                                         ('patch show nosuch', EXIT_SOURCE), ('cache list nosuch', EXIT_SOURCE), ('commit .', EXIT_MOUNT),
                                         ('discard .', EXIT_MOUNT), ('umount .', EXIT_MOUNT), ('status .', EXIT_MOUNT)])
def test_a_verb_that_fails_prints_its_line_and_no_document(place, words, code):
    verb, *others = words.split()
    done = weightfs(verb, '--json', *others, cwd=place, code=code)
    assert done.stdout == '' and done.error
