# SPDX-License-Identifier: MIT
"""Names that a description in the directory has: a backup of the index or of .metadata, or an index of the user's own. No save removes such a
file or gives another one its name, whatever the note of an interrupted save lists."""
import json
import os
import shutil
import subprocess

import pytest

from wfs_testlib import crash, program, sets
from wfs_testlib.program import weightfs

INDEXES = {'safetensors': 'model.safetensors.index.json', 'pytorch': 'pytorch_model.bin.index.json', 'burnpack': 'model.bpk.index.json',
           'dcp': '.metadata'}
OWN = ['mine.index.json', 'mine.json', '.mine.index.json', '.%s.weightfs.tmp.bak']
OTHERS = [(kind, other) for kind in INDEXES
          for other in ['%s~', '%s.~1~', '%s.bak', *(['mine%s', 'metadata.bak'] if kind == 'dcp' else OWN)]]


@pytest.fixture
def save(tmp_path):
    """Saves one of two checkpoints of two tensors, each of which is a file."""
    for name in ('old', 'new'):
        sets.write(tmp_path / name, [{key: ('U8', [4], name.encode() + key.encode())} for key in 'ab'])
    return lambda kind, name, **more: weightfs('convert', '--overwrite', '--format=' + kind, '--max-shard-size=4', tmp_path / name,
                                               '%s/' % (tmp_path / 'out'), **more)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def describe(out, index, other, how='file'):
    """Gives the description another name. Returns that, and the names of all other files."""
    files = sorted(set(os.listdir(out)) - {index})
    other = other % index if '%' in other else other
    os.rename(out / index, out / other)
    if how == 'link':
        os.rename(out / other, out.parent / 'elsewhere')
        os.symlink(out.parent / 'elsewhere', out / other)
    return other, files


def mark(path, is_right=True):
    return '%d %d' % (path.stat().st_ino, path.stat().st_mtime_ns + (not is_right))


def write_note(out, index, inode, files, is_right=True):
    """What somebody can write who guesses inodes and knows times."""
    lines = ['weightfs-set 3', 'index %d' % inode, *('old %s %s' % (mark(out / file, is_right), file) for file in files),
             'end', *('made %s %s' % (mark(out / file, is_right), file) for file in files), '']
    note = out / ('.%s.weightfs.set' % index)
    note.write_text('\n'.join(lines))
    note.chmod(0o600)


@pytest.mark.parametrize('is_published', [False, True])
@pytest.mark.parametrize('kind, other', [*OTHERS, *((kind, 'link ' + other) for kind, other in OTHERS if other in ('%s~', 'mine.json'))])
def test_no_note_removes_a_file_that_a_description_names(tmp_path, save, kind, other, is_published):
    out, index = tmp_path / 'out', INDEXES[kind]
    save(kind, 'old')
    other, files = describe(out, index, other.removeprefix('link '), 'link' if other.startswith('link ') else 'file')
    save(kind, 'new')
    before = {name: data for name, data in contents(out).items() if name in (other, *files)}
    assert len(files) == 2 and len(before) == 3
    write_note(out, index, (out / index).stat().st_ino if is_published else 1, files)
    save(kind, 'new')
    assert contents(out).items() >= before.items()
    assert len(os.listdir(out)) == 6 and not (out / ('.%s.weightfs.set' % index)).exists()


@pytest.mark.parametrize('is_right', [False, True])
@pytest.mark.parametrize('kind', INDEXES)
def test_an_inode_proves_nothing(tmp_path, save, kind, is_right):
    """Files that nothing describes any more: removed only if the note also has the time of their last change."""
    out, index = tmp_path / 'out', INDEXES[kind]
    save(kind, 'old')
    other, files = describe(out, index, 'mine')
    (out / other).unlink()
    before = contents(out)
    write_note(out, index, 1, files, is_right)
    save(kind, 'new')
    after = contents(out)
    assert len(after) == 3 if is_right else after.items() >= before.items()


@pytest.mark.parametrize('kind', INDEXES)
def test_no_note_removes_a_file_of_the_index_itself(tmp_path, save, kind):
    """By way of a link: the save is refused, and nothing of what the index names is gone."""
    out, index = tmp_path / 'out', INDEXES[kind]
    save(kind, 'old')
    describe(out, index, index, 'link')
    before = contents(out)
    write_note(out, index, 1, sorted(set(before) - {index}))
    save(kind, 'new', code=None)
    assert contents(out).items() >= {name: data for name, data in before.items() if name != index}.items()


@pytest.mark.parametrize('is_published', [False, True])
@pytest.mark.parametrize('kind, other', [(kind, other) for kind, other in OTHERS if other in ('%s~', 'mine.index.json')])
def test_a_description_that_cannot_be_read_may_name_any_file(tmp_path, save, kind, other, is_published):
    out, index = tmp_path / 'out', INDEXES[kind]
    save(kind, 'old')
    other, files = describe(out, index, other)
    (out / other).write_bytes((out / other).read_bytes()[:-20])
    before = contents(out)
    save(kind, 'new')
    write_note(out, index, (out / index).stat().st_ino if is_published else 1, files)
    save(kind, 'new')
    assert contents(out).items() >= before.items()


def test_a_damaged_metadata_may_name_any_file(tmp_path, save):
    out = tmp_path / 'out'
    save('dcp', 'old')
    before = contents(out)
    (out / '.metadata').write_bytes(before.pop('.metadata')[:-20])
    write_note(out, '.metadata', 1, sorted(before))
    save('dcp', 'new')
    assert contents(out).items() >= before.items()


@pytest.mark.parametrize('kind, other', [*OTHERS, *((kind, '%s') for kind in INDEXES)])
def test_a_name_that_a_description_has_is_not_used_again(tmp_path, save, kind, other):
    """Its file is missing, so the description would show the new one as its own."""
    out, index = tmp_path / 'out', INDEXES[kind]
    save(kind, 'old')
    other, files = describe(out, index, other)
    for file in files:
        (out / file).unlink()
    save(kind, 'new')
    assert not set(files) & set(os.listdir(out)) and len(os.listdir(out)) == 3 + (other != index)


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('is_over_another', [False, True])
@pytest.mark.parametrize('kind, own', [(kind, own) for kind in INDEXES for own in (['mine.metadata', '.metadata.mine'] if kind == 'dcp' else OWN)])
def test_what_a_user_rescued_of_an_interrupted_save_stays(tmp_path, save, kind, own, is_over_another):
    """Killed before its last rename: the index gets another name by hand."""
    out, index = tmp_path / 'out', INDEXES[kind]
    words = [*program.COMMAND, 'convert', '--overwrite', '--format=' + kind, '--max-shard-size=4', tmp_path / 'old', '%s/' % out]

    def run(mode, at):
        """Which names it made, or all calls."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        if is_over_another:
            save(kind, 'new')
        names = set(os.listdir(out))
        injection = crash.Injection(out, tmp_path / 'inject', mode, at)
        subprocess.run(words, env=injection.environment, check=mode == 'count', stderr=subprocess.DEVNULL)
        return injection.calls() if mode == 'count' else set(os.listdir(out)) - names

    last = 1 + max(i for i, call in enumerate(run('count', 0)) if call[0].startswith('rename'))
    made = run('kill-before', last)
    own = own % index if '%' in own else own
    shutil.copy(out / ('.%s.weightfs.tmp' % index), out / own)
    before = {name: data for name, data in contents(out).items() if name == own or (name in made and '.weightfs.' not in name)}
    assert len(before) == 3
    save(kind, 'new')
    assert contents(out).items() >= before.items()
    assert len(os.listdir(out)) == 6


SPELLINGS = {'after %d bytes' % n: ('"weight_map"', n) for n in (0, 1 << 19, *range((1 << 20) - 40, (1 << 20) + 8, 3))}
SPELLINGS.update({'with escapes %s' % word: (word, 5) for word in (r'"weight\u005fmap"', r'"\u0077\u0065ight_map"', r'"weight_ma\u0070"')})


@pytest.mark.parametrize('spelling', SPELLINGS)
def test_an_index_is_one_wherever_its_map_is(tmp_path, save, spelling):
    """Files of other kinds are looked through for the word before they are parsed."""
    out, index, (word, n) = tmp_path / 'out', INDEXES['safetensors'], SPELLINGS[spelling]
    save('safetensors', 'old')
    other, files = describe(out, index, 'mine.json')
    places = json.dumps(json.loads((out / other).read_text())['weight_map'])
    (out / other).write_text('{"more":"%s",%s:%s}' % ('x' * n, word, places))
    before = contents(out)
    for _ in range(2):
        save('safetensors', 'new')
    assert len(files) == 2 and contents(out).items() >= before.items()
