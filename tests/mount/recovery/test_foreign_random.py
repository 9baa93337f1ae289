# SPDX-License-Identifier: MIT
"""Random journals, bases, notes and links where a staging directory is expected: whatever they are, recovery, a mount and a
conversion touch only the output that is named."""
import os
import random as random_module
import shutil

import pytest

from wfs_testlib import sets, st
from wfs_testlib.mount import is_mounted
from wfs_testlib.program import COMMAND, demand_manners, tool
from wfs_testlib.stage import everything_but, journal, stage_of

KINDS = 'OCKESRDLXUBPF'
BASE_WORDS = ['source', '#source', '#output', '#stage', '#cwd', '#device', '#replaces', '#option limit', '#option flag', '#option format',
              'option', 'view', 'index']
OPTIONS = ['overwrite', 'sandbox=off', 'force', 'shards', 'rw', 'layout=flat', 'stage=/', 'safetensors']


class Stranger:
    """Who knows all paths, inodes and options, and writes what may be written beside an output."""

    def __init__(self, root, random):
        self.root, self.random = root, random
        self.victims = sorted(path for path in root.rglob('*') if path.is_file())

    def word(self):
        victim = self.random.choice(self.victims)
        now = victim.stat()
        return self.random.choice([
            str(victim), victim.name, '../' + victim.name, '../../%s/%s' % (victim.parent.name, victim.name), str(victim.parent), '..', '.',
            '/', 'w', 'w', '1', '0', 'U8', '[4]', '-', '%', str(now.st_ino), str(now.st_size), str(now.st_mtime_ns), str(now.st_dev),
            '%s/x' % victim.parent, self.random.choice(OPTIONS)])

    def words(self, least, most):
        return ' '.join(self.word().replace(' ', '%20') for _ in range(self.random.randint(least, most)))

    def journal(self):
        records = ['O x'] + ['%s %s' % (self.random.choice(KINDS), self.words(0, 5)) for _ in range(self.random.randint(0, 2))]
        victim = self.random.choice(self.victims)
        now = victim.stat()
        records += self.random.choice([[], ['D w'], ['B %s/x %s' % (victim.parent, victim.name)], ['D w', 'B %s %s' % (victim, victim.name)]])
        if records[-1].startswith('B') and self.random.random() < 0.5:
            records += ['P %d %d %d %d 1' % (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns), 'F'][:self.random.randint(1, 2)]
        return journal(*records)

    def base(self):
        return 'weightfs-base 1\n' + ''.join('%s %s\n' % (self.random.choice(BASE_WORDS), self.words(1, 3)) for _ in range(8))

    def plant_stage(self, output, true_base):
        stage = stage_of(output)
        stage.mkdir(mode=0o700, exist_ok=True)
        (stage / 'journal').write_bytes(self.journal())
        (stage / 'base').write_bytes(true_base if self.random.random() < 0.6 else self.base().encode())
        for _ in range(self.random.randint(0, 2)):
            path = stage / self.random.choice(['data', 'data/1', 'source', 'source/x', 'journal', 'journal.tmp', 'base', 'base.tmp',
                                               'status.json', 'status.json.tmp'])
            victim = self.random.choice(self.victims)
            if path.parent.is_symlink():
                continue
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if not path.is_dir():
                path.unlink(missing_ok=True)
                self.random.choice([os.link, os.symlink])(victim, path)

    def plant_note(self, index):
        lines = ['weightfs-set %d' % self.random.randint(1, 3), 'index %s' % self.random.choice([index.stat().st_ino, 1])]
        for _ in range(8):
            victim = self.random.choice(self.victims)
            name = self.random.choice([victim.name, victim.name, str(victim), '../%s/%s' % (victim.parent.name, victim.name)])
            lines.append('%s %s%s' % (self.random.choice(['new', 'old', 'made']), self.random.choice(['', '%d ' % victim.stat().st_ino, '%d %d ' % (victim.stat().st_ino, victim.stat().st_mtime_ns)]), name))
        lines.insert(self.random.randint(2, len(lines)), 'end')
        note = index.with_name('.%s.weightfs.set' % index.name)
        note.unlink(missing_ok=True)
        note.write_text('\n'.join(lines) + '\n')
        note.chmod(0o600)


def weightfs(*words):
    """Whatever comes of it, in an orderly way."""
    done = tool(*COMMAND, *words, code=None)
    assert done.code in range(10), done.stderr
    demand_manners(done.stderr)


def use(random, source, output, mnt):
    """One use of the output by its owner, who has named these paths."""
    verb = random.choice([[], ['--discard'], ['--resume'], ['--publish'], ['--publish', '--force'], 'mount', 'mount'])
    options = random.choice(['', 'overwrite'])
    if verb == 'mount':
        weightfs(source, mnt, '-o', ','.join(['output=%s' % output, *([options] if options else [])]))
        if is_mounted(mnt):
            weightfs('umount', mnt)
        if is_mounted(mnt):
            tool('umount', '-l', mnt)
    else:
        named = random.choice([[], ['--source', source], ['--source', source, '--options', options]])
        if '--publish' in verb and random.random() < 0.4:
            named = ['--onto', source, '--options', options]
        weightfs('recover', *verb, output, *named)


@pytest.mark.parametrize('seed', [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 100))])
def test_a_stranger_moves_nothing(mount, folder, seed):
    random = random_module.Random(seed)
    for name in ('home', 'given', 'mnt'):
        (folder / name).mkdir()
    (folder / 'home/notes').write_text('one line without an end')
    st.write(folder / 'home/model.safetensors', {'w': ('U8', [4], b'mine')})
    source = st.write(folder / 'given/source.safetensors', {'w': ('U8', [4], b'1234'), 'v': ('U8', [1], b'5')})
    model = sets.write(folder / 'given/set', [{'a': ('U8', [1], b'1')}, {'b': ('U8', [1], b'2')}])
    lone = st.write(folder / 'given/set/other-00001-of-00001.safetensors', {'x': ('U8', [1], b'x')})
    output = folder / 'given/out.safetensors'
    mnt = mount(source, 'output=%s' % output, at=folder / 'mnt')
    os.rename(mnt / 'w', mnt / 'u')
    true_base = (stage_of(output) / 'base').read_bytes()
    mnt.kill()
    mnt.forget()
    shutil.rmtree(stage_of(output))
    stranger = Stranger(folder, random)
    before = everything_but(folder, output, stage_of(output), folder / 'mnt')
    for _ in range(12):
        stranger.plant_stage(output, true_base)
        planted = everything_but(folder, output, stage_of(output), folder / 'mnt')
        use(random, source, output, folder / 'mnt')
        assert everything_but(folder, output, stage_of(output), folder / 'mnt') == planted, seed
        if stage_of(output).exists():
            shutil.rmtree(stage_of(output))
        output.unlink(missing_ok=True)
    assert everything_but(folder, output, stage_of(output), folder / 'mnt') == before
    stranger.plant_note(model / sets.INDEX)
    before = everything_but(folder, model, folder / 'mnt'), lone.read_bytes()
    weightfs('convert', '--overwrite', source, '%s/' % model)
    assert (everything_but(folder, model, folder / 'mnt'), lone.read_bytes()) == before, seed
