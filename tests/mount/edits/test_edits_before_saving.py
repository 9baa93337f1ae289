# SPDX-License-Identifier: MIT
"""Each kind of edit in each format: the trial says what the commit says, the difference is that of the files, the patch makes the same
bytes, and afterwards all is taken back."""
import pytest

from wfs_testlib.edit_kinds import kinds, look, steady
from wfs_testlib.program import EXIT_COMMIT, EXIT_DONE, EXIT_FOUND, weightfs

FORMATS = ['safetensors', 'pth', 'bpk']


def found(path):
    return path.read_bytes() if path.exists() else None


def is_refused(mnt, name, folder, trial):
    """Every verb says so, in one line each."""
    committed = weightfs('commit', mnt.path, code=None)
    if committed.code == EXIT_DONE:
        return False
    reason = committed.error.split('cannot commit: ')[-1].rsplit('; the edits', 1)[0].split(': ', 1)[-1]
    assert trial.code == EXIT_COMMIT and reason in trial.stderr, (name, trial.stderr, reason)
    assert weightfs('diff', mnt.path, code=None).code > EXIT_FOUND, name
    weightfs('patch', 'make', mnt.path, folder / 'none', code=EXIT_COMMIT)
    assert not (folder / 'none').exists(), name
    return True


def check_saved(mnt, name, folder, trial, difference):
    said = weightfs('commit', mnt.path).stdout
    assert said in (trial.stdout.replace('would commit', 'committed'), 'nothing to commit\n'), name
    of_files = weightfs('diff', '--all', mnt.source, mnt.out, code=None)
    assert (difference.code, difference.stdout) == (of_files.code, of_files.stdout), name
    again = folder / ('again' + mnt.out.suffix)
    weightfs('patch', 'apply', folder / 'patch', mnt.source, again, '--overwrite')
    assert again.read_bytes() == mnt.out.read_bytes(), name


def check_each(mnt, folder, first=0, stride=1):
    before, n_saved = steady(look(mnt.path)), 0
    edits = {name: edit for name, (edit, _) in kinds(mnt).items() if not name.endswith('old name')}  # which is the same edit
    for name in list(edits)[first::stride]:
        edits[name](mnt)
        old = found(mnt.out)
        trial = weightfs('commit', '--dry-run', mnt.path, code=None)
        assert found(mnt.out) == old, name
        if trial.code != EXIT_DONE:
            mnt.allow('.')
            assert is_refused(mnt, name, folder, trial), name
        else:
            difference = weightfs('diff', '--all', mnt.path, code=None)
            weightfs('patch', 'make', '--overwrite', mnt.path, folder / 'patch')
            check_saved(mnt, name, folder, trial, difference)
            n_saved += 1
        weightfs('discard', '--committed', mnt.path)
        assert steady(look(mnt.path)) == before, name
        assert weightfs('status', '--edits', mnt.path).stdout == 'no edits\n', name
    assert n_saved * stride > 15
    weightfs('umount', '--discard', mnt.path)


@pytest.mark.parametrize('made', FORMATS, indirect=True)
def test_each_kind_of_edit_in_one_of_the_formats(made, folder):
    check_each(made, folder, FORMATS.index(made.ending), len(FORMATS))


@pytest.mark.slow
@pytest.mark.parametrize('made', FORMATS, indirect=True)
def test_each_kind_of_edit_in_each_format(made, folder):
    check_each(made, folder)
