# SPDX-License-Identifier: MIT
"""weightfs extract: files that numpy reads, below the directory and nowhere else, each whole or not there."""
import os
import resource
import subprocess

import numpy
import pytest

from wfs_testlib import program, pth, st
from wfs_testlib.program import COMMAND, EXIT_RULES, EXIT_USAGE, SAMPLE, weightfs


def below(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob('*') if not file.is_dir())


def test_numpy_reads_the_files(small, folder):
    done = weightfs('extract', small, 'a.b.*', 'step', '-d', folder / 'out')
    assert below(folder / 'out') == ['a/b/bias.npy', 'a/b/weight.npy', 'step.npy']
    assert numpy.load(folder / 'out/a/b/weight.npy').tolist() == [[1, 2, 3], [4, 5, 6]]
    assert numpy.load(folder / 'out/step.npy') == 42
    n_bytes = sum((folder / 'out' / name).stat().st_size for name in below(folder / 'out'))
    assert done.stdout == "extracted 3 files, %d bytes, to '%s'\n" % (n_bytes, folder / 'out')


def test_all_of_it_raw(small, folder):
    weightfs('extract', small, '--directory', folder / 'out', '--files=raw')
    assert {name: (folder / 'out' / name).read_bytes() for name in below(folder / 'out')} == {
        key.replace('.', '/'): data for key, (_, _, data) in st.read(small).tensors.items()}


def test_a_view_and_values(folder):
    source = folder / 'in.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(epoch=pth.number(3), w=pth.tensor(size=(2, 2), stride=(1, 2))), r0=st.f32(1, 2, 3, 4)))
    weightfs('extract', source, '-d', folder / 'out', '--cast', 'F16', '--rename', 'w', 'm.w')
    assert below(folder / 'out') == ['epoch.json', 'm/w.npy']
    array = numpy.load(folder / 'out/m/w.npy')
    assert array.dtype == numpy.float16 and array.tolist() == [[1, 3], [2, 4]]
    assert (folder / 'out/epoch.json').read_text() == '3\n'


HOSTILE = ['../up', '/etc/x', 'a/../../b', '..', '.', '...', 'x..y', '.weightfs-extract.tmp', '%', 'con', 'a\nb', 'k' * 300, '~', '-rf', '\\x2e\\x2e']


@pytest.mark.parametrize('layout', ['nested', 'flat'])
def test_no_key_leads_out(folder, layout):
    source = st.write(folder / 'in.safetensors', {key: ('U8', [1], b'x') for key in HOSTILE})
    before = sorted(os.listdir(folder))
    os.mkdir(folder / 'above')
    weightfs('extract', source, '-d', folder / 'above/out', '--layout', layout)
    assert len(below(folder / 'above/out')) == len(HOSTILE)
    assert os.listdir(folder / 'above') == ['out'] and sorted(os.listdir(folder)) == sorted([*before, 'above'])


@pytest.mark.parametrize('planted', ['a', 'a/b', 'a/b/weight.npy'])
def test_no_link_leads_out(small, folder, planted):
    target, link = folder / 'elsewhere', folder / 'out' / planted
    link.parent.mkdir(parents=True)
    target.mkdir() if not planted.endswith('.npy') else target.write_bytes(b'keep')
    link.symlink_to(target)
    done = weightfs('extract', small, 'a.b.weight', '-d', folder / 'out', '--overwrite', code=0 if planted.endswith('.npy') else 9)
    assert done.code == 0 or "cannot write 'a/b/weight.npy': Not a directory" in done.error
    assert (list(target.iterdir()) == []) if target.is_dir() else target.read_bytes() == b'keep'


def test_existing_files_stay_without_overwrite(small, folder):
    (folder / 'out/a/b').mkdir(parents=True)
    (folder / 'out/a/b/weight.npy').write_bytes(b'mine')
    refused = weightfs('extract', small, '-d', folder / 'out', code=9)
    assert refused.error == "%s: 'a/b/weight.npy' already exists (use --overwrite to replace files)" % (folder / 'out')
    assert below(folder / 'out') == ['a/b/weight.npy'] and (folder / 'out/a/b/weight.npy').read_bytes() == b'mine'
    weightfs('extract', small, '-d', folder / 'out', '--overwrite')
    assert numpy.load(folder / 'out/a/b/weight.npy').shape == (2, 3)


def test_a_directory_in_the_way(small, folder):
    (folder / 'out/step.npy').mkdir(parents=True)
    assert "cannot write 'step.npy': Is a directory" in weightfs('extract', small, '-d', folder / 'out', '--overwrite', code=9).error
    assert below(folder / 'out') == []


@pytest.mark.parametrize('patterns, message', [
    (['a.b.wieght'], "no key matches 'a.b.wieght'; did you mean 'a.b.weight'?"),
    (['step', 'zz*', 'yy*'], "no key matches 'zz*' (a glob matches whole keys"),
])
def test_patterns_without_a_match(small, folder, patterns, message):
    assert message in weightfs('extract', small, *patterns, '-d', folder / 'out', code=EXIT_RULES).error
    assert not (folder / 'out').exists()


@pytest.mark.parametrize('options, message', [
    ([], 'missing -d DIR'), (['-d', 'x', '--files=zip'], '--files must be npy or raw'), (['-d', 'x', '--layout', 'x'], '--layout must be nested or flat')])
def test_mistakes(small, options, message):
    assert message in weightfs('extract', small, *options, code=EXIT_USAGE).error


def test_a_private_source_makes_private_files(small, folder):
    small.chmod(0o600)
    weightfs('extract', small, 'step', '-d', folder / 'out')
    assert (folder / 'out/step.npy').stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_no_part_of_a_file(folder):
    source = st.write(folder / 'in.safetensors', {'big': ('U8', [1 << 20], bytes(1 << 20))})
    done = subprocess.run(['bash', '-c', 'ulimit -f 512; trap "" XFSZ; exec "$@"', '-', *COMMAND, 'extract', source, '-d', folder / 'out'],
                          stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 9 and "cannot write 'big.npy': File too large" in done.stderr and below(folder / 'out') == []


def test_two_at_once_do_not_mix(folder):
    source = st.write(folder / 'in.safetensors', {'k%d' % i: ('U8', [300000], bytes([i]) * 300000) for i in range(20)})
    running = [subprocess.Popen([*COMMAND, 'extract', source, '-d', folder / 'out', '--overwrite'], stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [one.wait() for one in running] == [0] * 4
    assert below(folder / 'out') == sorted('k%d.npy' % i for i in range(20))
    assert all((numpy.load(folder / 'out' / ('k%d.npy' % i)) == i).all() for i in range(20))


SLOW = program.ROOT / 'tests/data/slow'


@pytest.mark.parametrize('name', ['repeated-many.pth', 'repeated-legacy.pt'])
def test_repeated_elements_fill_no_disk(folder, name):
    assert '--large allows it' in weightfs('extract', SLOW / name, '-d', folder / 'out', code=9, preexec_fn=limit).error
    assert not (folder / 'out').exists()
    assert 'overlap so often' in weightfs('patch', 'make', SLOW / name, SLOW / name, folder / 'p', code=6, preexec_fn=limit).error


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


def test_the_sample(folder):
    weightfs('extract', SAMPLE, '-d', folder / 'out')
    for key, (dtype, shape, data) in st.read(SAMPLE).tensors.items():
        array = numpy.load(folder / 'out' / (key.replace('.', '/') + '.npy'))
        assert array.shape == tuple(shape) and array.tobytes() == data, (key, dtype)
