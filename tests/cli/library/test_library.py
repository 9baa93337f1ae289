# SPDX-License-Identifier: MIT
"""The library by its header: checkpoints, tensors and slices of them, edits and saving, wrong uses."""
import ctypes
import json
import os
import pathlib
import random
import threading

import numpy as np
import pytest

from wfs_testlib import bad_server, checkpoints, st
from wfs_testlib.program import _is_sanitized, weightfs

pytestmark = pytest.mark.skipif(_is_sanitized(), reason='a sanitizer has to be in the program that loads the library')
if not _is_sanitized():
    from wfs_testlib.library import DECLARED, LIBRARY, Checkpoint, Edits, Failure, call, options, text_of


def fails(code, text, function, *arguments, **more):
    with pytest.raises(Failure, match=text) as caught:
        function(*arguments, **more)
    assert caught.value.code == code


# ---- opening ----

def test_a_checkpoint_has_the_tensors_of_its_file(small):
    with Checkpoint(small) as checkpoint:
        expected = st.read(small)
        assert checkpoint.keys() == list(expected.tensors) == list(checkpoint.tensors())
        assert LIBRARY.wfs_checkpoint_format(checkpoint.pointer) == b'safetensors'
        for key, (dtype, shape, content) in expected.tensors.items():
            tensor = checkpoint[key]
            assert (tensor.get('dtype'), tensor.shape, tensor.read(), tensor.get('n_bytes')) == (dtype, list(shape), content, len(content))
            assert (tensor.get('origin'), tensor.get('changes'), tensor.get('computed'), tensor.get('trouble')) == (key, None, None, None)
        assert checkpoint['a.c'].read(1, 3) == b'ell' and checkpoint['a.c'].read(4, 100) == b'o' and checkpoint['a.c'].read(5, 1) == b''
        assert not LIBRARY.wfs_checkpoint_tensor(checkpoint.pointer, len(checkpoint))


def test_bytes_can_be_found_in_the_file(small):
    with Checkpoint(small) as checkpoint, Checkpoint(small, 'cast=F16') as cast:
        offset, fd = ctypes.c_uint64(), ctypes.c_int()
        tensor = checkpoint['a.b.weight']
        assert LIBRARY.wfs_tensor_file(checkpoint.pointer, tensor.pointer, ctypes.byref(offset), ctypes.byref(fd)) == os.fsencode(small)
        assert os.pread(fd.value, 24, offset.value) == tensor.read()
        assert not LIBRARY.wfs_tensor_file(cast.pointer, cast['a.b.weight'].pointer, ctypes.byref(offset), None)


def test_options_are_those_of_the_program(small, folder):
    notices = []
    with Checkpoint(small, 'remap=s/^a\\.//', 'cast=F16', 'exclude=^none$', 'limit=tensors=10', notices=notices) as checkpoint:
        assert checkpoint.keys() == [row.split('\t')[0] for row in weightfs(
            'ls', small, '--remap', 's/^a\\.//', '--exclude=^none$').stdout.splitlines()]
        tensor = checkpoint['b.weight']
        assert (tensor.get('dtype'), tensor.get('origin')) == ('F16', 'a.b.weight') and 'cast F32 to F16' in tensor.get('changes')
    (folder / 'set').mkdir()
    weightfs('convert', small, '%s/set/' % folder, '--format=safetensors', '--max-shard-size=10')
    with Checkpoint(folder / 'set', 'top-level-key=a') as checkpoint:
        assert sorted(checkpoint.keys()) == ['b.bias', 'b.weight', 'c']


def test_wrong_options_are_refused(small):
    fails(22, "^unknown option 'cest'; did you mean 'cast'\\?$", Checkpoint, small, 'cest=F16')
    fails(22, "^unknown option 'overwrite'$", Checkpoint, small, 'overwrite')
    fails(22, '^cast: .*F17', Checkpoint, small, 'cast=F17')
    fails(22, '^force: takes no value$', Checkpoint, small, 'force=1')
    fails(22, '^epoch: needs a value: epoch=N$', Checkpoint, small, 'epoch')
    fails(22, '^limit: needs NAME=N$', Checkpoint, small, 'limit=3')
    pointer = ctypes.c_void_p()
    fails(22, '^the size of the options is not set$', call, 'wfs_open', os.fsencode(small),
          ctypes.byref(ctypes.c_size_t(0)), ctypes.byref(pointer))


def test_what_cannot_be_opened_is_named(folder, small):
    (folder / 'text').write_text('no checkpoint')
    (folder / 'cut.safetensors').write_bytes(small.read_bytes()[:100])
    fails(2, '^%s/none: cannot open it: No such file' % folder, Checkpoint, folder / 'none')
    fails(124, '^%s/text: ' % folder, Checkpoint, folder / 'text')
    fails(74, '^%s/cut.safetensors: ' % folder, Checkpoint, folder / 'cut.safetensors')
    fails(2, '^%s/other: ' % folder, Checkpoint, small, 'like=%s/other' % folder)
    fails(126, "a.b.wieght'; did you mean 'a.b.weight'\\?$", lambda: Checkpoint(small)['a.b.wieght'])


def test_the_error_may_be_left_out(folder):
    pointer = ctypes.c_void_p()
    assert LIBRARY.wfs_open(os.fsencode(folder / 'none'), None, ctypes.byref(pointer), None) == -2 and not pointer


def test_a_file_that_changes_is_not_read(small):
    with Checkpoint(small) as checkpoint:
        os.truncate(small, 300)
        fails(5, "^tensor 'step': .* was changed by another program", checkpoint['step'].read)


# ---- slices ----

def random_slices(rng, shape):
    chosen, slices = [], []
    for dim in shape[:rng.randint(0, len(shape))]:
        part = slice(rng.randint(-dim - 1, dim + 1), rng.choice([None, rng.randint(-dim - 1, dim + 1)]), rng.choice([1, 1, 2, 3, 7, -1, -2, -5]))
        indices = range(*part.indices(dim))
        chosen.append(part)
        slices.append((indices.start if len(indices) else 0, len(indices), part.step))
    return tuple(chosen), slices


@pytest.mark.parametrize('view', [(), ('transpose=m',), ('cast=F64',), ('cast=BF16', 'transpose=m')], ids=lambda view: '+'.join(view) or 'plain')
def test_slices_are_those_of_numpy(folder, view):
    rng = random.Random(3)
    arrays = {'v': np.arange(50, dtype='<f4'), 'm': np.arange(35 * 44, dtype='<f4').reshape(35, 44),
              't': np.arange(7 * 9 * 11, dtype='<i4').reshape(7, 9, 11), 's': np.array(3, '<i8'), 'e': np.zeros((3, 0, 2), '<f4')}
    names = {'<f4': 'F32', '<i4': 'I32', '<i8': 'I64'}
    path = st.write(folder / 'x.safetensors', {key: (names[a.dtype.str.replace('=', '<')], list(a.shape), a.tobytes()) for key, a in arrays.items()})
    with Checkpoint(path, *view) as checkpoint:
        for key, tensor in checkpoint.tensors().items():
            whole = np.frombuffer(tensor.read(), {'BF16': 'u2', 'F32': 'u4', 'I32': 'u4'}.get(tensor.get('dtype'), 'u8')).reshape(tensor.shape)
            for _ in range(120):
                chosen, slices = random_slices(rng, tensor.shape)
                assert tensor.read_slice(slices) == np.ascontiguousarray(whole[chosen]).tobytes(), (key, chosen)


def test_slices_are_converted_as_casts_are(folder):
    values = np.array([1, -2.5, 3.0e38, 65504, 1e-3, 7], '<f4').reshape(2, 3)
    bf16 = (values.view('<u4') >> 16).astype('<u2')
    path = st.write(folder / 'x.safetensors', {'w': ('F32', [2, 3], values.tobytes()), 'b': ('BF16', [2, 3], bf16.tobytes())})
    with Checkpoint(path) as checkpoint, Checkpoint(path, 'cast=.:F16') as halves, np.errstate(over='ignore'):
        widened = (bf16.astype('<u4') << 16).view('<f4')
        assert checkpoint['b'].read_slice([(1, 1, 1)], 'F32') == widened[1:2].tobytes()
        assert checkpoint['b'].read_slice([], 'float64') == widened.astype('<f8').tobytes()
        assert checkpoint['w'].read_slice([(0, 2, 1), (2, 2, -2)], 'F16') == values[:, ::-2].astype('<f2').tobytes()
        # What is cast already is converted from what it shows.
        assert halves['w'].read_slice([], 'F32') == values.astype('<f2').astype('<f4').tobytes()
        fails(22, "^tensor 'w': F32 cannot be converted to C64$", checkpoint['w'].read_slice, [], 'C64')
        fails(22, "^no dtype 'F33'", checkpoint['w'].read_slice, [], 'F33')


def test_packed_elements_are_sliced_by_whole_bytes(folder):
    path = st.write(folder / 'x.safetensors', {'w': ('F4', [4, 6], bytes(range(12)))})
    with Checkpoint(path) as checkpoint:
        tensor = checkpoint['w']
        assert tensor.read_slice([(1, 1, 1), (1, 3, 1)], 'F32') == st.f32(0, 2, 0)
        assert tensor.read_slice([(1, 2, 1)]) == bytes(range(3, 9)) and tensor.read_slice([(2, 1, 1), (2, 4, 1)]) == bytes([7, 8])
        fails(22, "^tensor 'w': its elements are less than a byte: ", tensor.read_slice, [(0, 4, 1), (1, 2, 1)])
        fails(22, "^tensor 'w': its elements are less than a byte: ", tensor.read_slice, [(1, 1, 1), (1, 4, 1)])


def test_wrong_slices_are_refused(small):
    with Checkpoint(small) as checkpoint:
        tensor = checkpoint['a.b.weight']
        for part in [(2, 1, 1), (0, 3, 1), (1, 2, 1), (0, 2, -1), (1, 3, -1), (0, 2, 0), (0, 2, 1 << 62), (1 << 63, 1, 1), (0, 2 ** 64 - 1, 1)]:
            fails(22, "^tensor 'a.b.weight': a slice does not fit dimension 0, which has 2 indices$", tensor.read_slice, [part])
        fails(22, 'more slices than dimensions$', tensor.read_slice, [(0, 1, 1)] * 3)
        fails(105, 'the result has 24 bytes, the buffer 23$', tensor.read_slice, [], None, 23)
        assert tensor.read_slice([(0, 0, 0), (3, 0, 1)]) == b'' and tensor.read_slice([(1, 1, 0)]) == st.f32(4, 5, 6)
        fails(4, 'interrupted while', tensor.read, given=options(progress=lambda done, total: 1))


def test_sizes_of_dtypes():
    for name, expected in [('BF16', (1, 2)), ('F4', (2, 1)), ('float32', (1, 4)), ('Q4_0', (32, 18))]:
        sizes = ctypes.c_uint(), ctypes.c_uint()
        call('wfs_dtype_size', name.encode(), *map(ctypes.byref, sizes))
        assert tuple(size.value for size in sizes) == expected


# ---- edits ----

def test_edits_make_another_file(small, folder):
    before = small.read_bytes()
    with Checkpoint(small) as checkpoint, Edits(checkpoint) as edits:
        edits.do('rename', 'a.b.weight', 'new.weight')
        edits.do('remove', 'none')
        edits.put('a.c', 'F32', [2], st.f32(1, 2))
        edits.put('more', 'U8', [3], b'abc')
        edits.put('new.weight', 'BF16', [1], b'\x80\x3f')
        edits.do('set', 'step', 'dtype', 'F64')
        edits.do('set_metadata', 'by', None)
        edits.do('set_metadata', 'for', 'you')
        edits.do('copy', 'again', checkpoint['a.b.bias'].pointer)
        assert len(edits.list()) == 8
        report = checkpoint.save(folder / 'out.safetensors', edits=edits)
        assert (report['format'], report['tensors'], report['files'], report['left_out']) == ('safetensors', 6, 1, [])
        assert len(checkpoint) == 5 and small.read_bytes() == before
    found = st.read(folder / 'out.safetensors')
    assert found.metadata == {'format': 'pt', 'for': 'you'}
    assert {key: (dtype, list(shape), content) for key, (dtype, shape, content) in found.tensors.items()} == {
        'new.weight': ('BF16', [1], b'\x80\x3f'), 'a.c': ('F32', [2], st.f32(1, 2)), 'more': ('U8', [3], b'abc'),
        'a.b.bias': ('F32', [3], st.f32(7, 8, 9)), 'again': ('F32', [3], st.f32(7, 8, 9)), 'step': ('F64', [], (42).to_bytes(8, 'little'))}


def test_wrong_edits_are_refused(small, folder):
    with Checkpoint(small) as checkpoint, Edits(checkpoint) as edits, Checkpoint(small) as other:
        fails(126, "no tensor 'a.b.wight'; did you mean 'a.b.weight'\\?$", edits.do, 'rename', 'a.b.wight', 'x')
        fails(126, "no tensor or value 'nothing'$", edits.do, 'remove', 'nothing')
        fails(22, "^tensor 'x': dtype and shape make 8 bytes, and not 7$", edits.put, 'x', 'F32', [2], b'1234567')
        fails(22, "^tensor 'x': dtype and shape make", edits.put, 'x', 'F32', [1 << 63, 1 << 63], b'')
        fails(22, "^no dtype 'float33'", edits.put, 'x', 'float33', [2], b'12345678')
        edits.do('remove', 'a.c')
        edits.do('rename', 'step', 'n')
        fails(17, "'a.c' is edited twice$", edits.put, 'a.c', 'U8', [1], b'1')
        fails(17, "'step' is edited twice$", edits.do, 'remove', 'step')
        fails(17, "'n' is edited twice$", edits.do, 'rename', 'a.b.bias', 'n')
        fails(22, '^the edits are of another checkpoint$', other.save, folder / 'x.pth', edits=edits)
        edits.do('rename', 'a.b.bias', 'a.b.weight')
        fails(22, 'a.b.weight', checkpoint.save, folder / 'x.pth', edits=edits)
        assert os.listdir(folder) == ['small.safetensors']


def test_names_can_be_exchanged(small, folder):
    with Checkpoint(small) as checkpoint, Edits(checkpoint) as edits:
        edits.do('rename', 'a.b.bias', 'a.c')
        edits.do('rename', 'a.c', 'a.b.bias')
        edits.do('remove', 'step')
        edits.do('rename', 'a.b.weight', 'step')
        edits.put('a.b.weight', 'U8', [1], b'1')
        checkpoint.save(folder / 'x.safetensors', edits=edits)
    found = st.read(folder / 'x.safetensors').tensors
    assert found['a.c'][2] == st.f32(7, 8, 9) and found['step'][1] == [2, 3] and found['a.b.weight'][2] == b'1'


def test_a_file_is_replaced_by_itself_with_edits(small):
    with Checkpoint(small) as checkpoint, Edits(checkpoint) as edits:
        edits.do('remove', 'a.b.weight')
        fails(17, '^%s: would overwrite the source \\(set overwrite to do that\\)$' % small, checkpoint.save, small, edits=edits)
        checkpoint.save(small, 'overwrite', edits=edits)
        assert checkpoint['a.b.weight'].read() == st.f32(1, 2, 3, 4, 5, 6), 'it shows what it was opened with'
    assert 'a.b.weight' not in st.read(small).tensors


def test_a_save_that_is_stopped_leaves_nothing(small, folder):
    with Checkpoint(small) as checkpoint:
        seen = []
        fails(4, 'interrupted', checkpoint.save, folder / 'x.pth', progress=lambda done, total: seen.append((done, total)) or 1)
    assert seen and os.listdir(folder) == ['small.safetensors']


def test_a_checkpoint_is_made_of_nothing(folder):
    content = {'b': ('F32', [2, 1], st.f32(1, 2)), 'a': ('BF16', [], b'\x80\x3f')}
    with Checkpoint() as checkpoint, Edits(checkpoint) as edits:
        for key, row in content.items():
            edits.put(key, *row)
        edits.do('set_metadata', 'format', 'pt')
        for name in ('x.safetensors', 'x.pth', 'x.bpk', 'x.gguf', 'x.mpk', 'set/'):
            notices = []
            report = checkpoint.save('%s/%s' % (folder, name), *(['format=safetensors', 'max-shard-size=8'] if name == 'set/' else []),
                                     edits=edits, notices=notices)
            assert [item['kind'] for item in report['left_out']] == (['metadata'] if notices and 'metadata' in notices[0] else [])
            with Checkpoint(report['output']) as again:
                assert {key: again[key].read() for key in again.keys()} == {key: row[2] for key, row in content.items()}, name
    assert list(st.read(folder / 'x.safetensors').tensors) == ['b', 'a']


def test_a_patch_file_has_the_edits(small, folder):
    with Checkpoint(small) as checkpoint, Edits(checkpoint) as edits, Edits(checkpoint) as again:
        edits.do('rename', 'a.c', 'c')
        edits.put('more', 'U8', [3], b'abc')
        call('wfs_edits_save', edits.pointer, os.fsencode(folder / 'p.safetensors'), None)
        fails(17, 'already exists', call, 'wfs_edits_save', edits.pointer, os.fsencode(folder / 'p.safetensors'), None)
        again.do('open', str(folder / 'p.safetensors'))
        assert again.list() == edits.list()
        fails(22, '^the edits of a patch file are complete$', again.do, 'remove', 'step')
        checkpoint.save(folder / 'x.safetensors', edits=again)
    weightfs('patch', 'apply', folder / 'p.safetensors', small, folder / 'y.safetensors')
    assert (folder / 'x.safetensors').read_bytes() == (folder / 'y.safetensors').read_bytes()


def test_values_of_a_pickle_are_edited_and_left_out(folder):
    checkpoints.write(folder / 'm.pth', {'w': ('F32', [2], st.f32(1, 2))}, epoch=b'K\x03')
    notices = []
    with Checkpoint(folder / 'm.pth') as checkpoint, Edits(checkpoint) as edits:
        edits.do('set_value', 'epoch', '4')
        checkpoint.save(folder / 'n.pth', edits=edits)
        assert checkpoint.save(folder / 'n.safetensors', notices=notices)['left_out'][0]['name'] == 'epoch'
    assert notices and "'epoch'" in notices[0]
    assert weightfs('config', folder / 'n.pth', 'epoch').stdout == '4\n'


def test_conversion_and_plan_are_those_of_the_program(small, folder):
    report = text_of('wfs_convert', os.fsencode(small), os.fsencode(folder / 'x.pth'), options('cast=F16', 'exclude=none', 'safe'))
    weightfs('convert', small, folder / 'y.pth', '--cast=F16', '--exclude=none')
    assert report['format'] == 'pytorch' and (folder / 'x.pth').read_bytes() == (folder / 'y.pth').read_bytes()
    fails(22, "^cannot infer the format from the name '%s/x.y': set format, or use 'NAME/'" % folder, text_of, 'wfs_convert',
          os.fsencode(small), os.fsencode(folder / 'x.y'), None)
    assert text_of('wfs_plan', os.fsencode(small), options('remap=s/a/b/')) == json.loads(
        weightfs('plan', '--json', small, '--remap', 's/a/b/').stdout)


# ---- reports ----

def printed(*arguments, code=0):
    """What the program prints, of one source; the library does not number its schema."""
    found = json.loads(weightfs(*arguments, code=code).stdout)
    del found['schema']
    return found['sources'][0] if 'sources' in found else found


def test_reports_are_those_of_the_program(folder):
    one = st.write(folder / 'one.safetensors', {'a.w': ('F32', [2, 3], st.f32(1, 2, float('nan'), 4, 5, 6)), 'a.z': ('F32', [4], bytes(16)),
                                                'x': ('U8', [2], b'ab'), 'A.z': ('F32', [4], bytes(16))}, {'by': 'a test'})
    two = st.write(folder / 'two.safetensors', {'a.w': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 7)), 'b': ('U8', [2], b'ab'), 'z': ('BF16', [1], b'12')})
    with Checkpoint(one) as a, Checkpoint(two) as b:
        assert text_of('wfs_info', a.pointer) == printed('info', '--json', one)
        assert text_of('wfs_metadata', a.pointer) == {'by': 'a test'}
        assert text_of('wfs_sum', a.pointer, None) == printed('sum', '--json', one)
        for _ in range(2):
            assert text_of('wfs_check', a.pointer, None) == printed('check', '--json', one, code=1)
            assert text_of('wfs_check', a.pointer, options('values')) == printed('check', '--json', '--values', one, code=1)
        for words in ([], ['exact'], ['long'], ['exact', 'long']):
            assert text_of('wfs_diff', a.pointer, b.pointer, options(*words)) == printed(
                'diff', '--json', *['--' + word for word in words], one, two, code=1)
        assert text_of('wfs_diff', a.pointer, a.pointer, None)['is_equal'] is True
        stats = text_of('wfs_stats', a['a.w'].pointer, None)['stats']
        assert (stats['min'], stats['max'], stats['nan'], stats['finite']) == (1, 6, 1, 5)
        fails(126, 'there are no values beside the tensors$', text_of, 'wfs_values', a.pointer, b'x')
        fails(22, "^unknown option 'value'; did you mean 'values'\\?$", text_of, 'wfs_check', a.pointer, options('value'))
        for name, arguments in [('check', [a.pointer]), ('sum', [a.pointer]), ('diff', [a.pointer, b.pointer])]:
            given = options(*(['values'] if name == 'check' else []), progress=lambda done, total: 1)
            fails(4, 'nterrupted', text_of, 'wfs_' + name, *arguments, given)


def test_values_and_checksums_are_those_of_the_program(folder):
    checkpoints.write(folder / 'm.pth', {'w': ('F32', [2], st.f32(1, 2))}, epoch=b'K\x03')
    content = bytearray((folder / 'm.pth').read_bytes())
    content[content.index(st.f32(1, 2)) + 3] ^= 1
    (folder / 'n.pth').write_bytes(content)
    with Checkpoint(folder / 'm.pth') as good, Checkpoint(folder / 'n.pth') as bad:
        assert text_of('wfs_values', good.pointer, None) == {'epoch': 3} and text_of('wfs_values', good.pointer, b'epoch') == 3
        for _ in range(2):
            assert text_of('wfs_check', bad.pointer, None) == printed('check', '--json', folder / 'n.pth', code=1)
        assert text_of('wfs_check', good.pointer, None) == printed('check', '--json', folder / 'm.pth')


# ---- threads, processes, memory ----

def test_threads_read_at_once(folder):
    rng = np.random.default_rng(5)
    content = {'w%d' % i: ('F32', [300, 400], rng.random((300, 400), '<f4').astype('<f4').tobytes()) for i in range(6)}
    path = st.write(folder / 'x.safetensors', content)
    wrong = []

    def read(checkpoint, n, expected):
        numbers = random.Random(n)
        for _ in range(60):
            key = 'w%d' % numbers.randrange(6)
            row = numbers.randrange(400)
            part = checkpoint[key].read_slice([(row, 1, 1)], numbers.choice(['F32', None]))
            if part != expected[key][row].tobytes() or checkpoint.keys()[0] != 'w0':
                wrong.append((n, key, row))

    with Checkpoint(path, 'transpose=w', 'add=%s:0' % path) as checkpoint:
        expected = {key: np.frombuffer(row[2], '<f4').reshape(300, 400).T for key, row in content.items()}
        threads = [threading.Thread(target=read, args=(checkpoint, n, expected)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_child_reads_and_closes_what_its_parent_opened(small):
    with Checkpoint(small, 'transpose=weight') as checkpoint:
        checkpoint['a.b.weight'].read()
        pid = os.fork()
        if pid == 0:
            is_right = checkpoint['a.b.weight'].read() == st.f32(1, 4, 2, 5, 3, 6)
            LIBRARY.wfs_close(checkpoint.pointer)
            os._exit(0 if is_right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert checkpoint['a.b.weight'].read() == st.f32(1, 4, 2, 5, 3, 6)


def children():
    return {pid for path in pathlib.Path('/proc/self/task').glob('*/children') for pid in path.read_text().split()}


def test_a_url_is_fetched_by_a_process_that_nobody_has_to_wait_for(folder):
    content = np.arange(1 << 20, dtype='<u4').tobytes()
    path = st.write(folder / 'x.safetensors', {'w': ('U32', [1 << 20], content), 'v': ('U8', [3], b'abc')})
    before = children()
    with bad_server.BadServer(path.read_bytes()) as server:
        with Checkpoint(server.url('/x.safetensors')) as checkpoint:
            assert checkpoint['v'].read() == b'abc' and checkpoint['w'].read_slice([(1000, 3, 1)]) == content[4000:4012]
            assert children() == before
            pid = os.fork()
            if pid == 0:
                try:
                    checkpoint['w'].read()
                except Failure as failure:
                    os._exit(7 if failure.code == 5 else 1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7, 'a child of the process cannot fetch, and does not hang'
            assert checkpoint['w'].read() == content


def test_opening_many_times_keeps_no_memory(small):
    def memory():
        with open('/proc/self/statm', encoding='ascii') as file:
            return int(file.read().split()[1]) * 4096

    def once():
        with Checkpoint(small, 'remap=s/a/b/', 'transpose=weight') as checkpoint, Edits(checkpoint) as edits:
            checkpoint['b.b.weight'].read_slice([(0, 1, 1)], 'F64')
            edits.do('rename', 'b.c', 'x')
            with pytest.raises(Failure):
                edits.do('remove', 'none of them')
            with pytest.raises(Failure):
                Checkpoint(small, 'like=nothing')
    n_files = len(os.listdir('/proc/self/fd'))
    for _ in range(300):
        once()
    before = memory()
    for _ in range(3000):
        once()
    assert memory() - before < 1 << 20 and len(os.listdir('/proc/self/fd')) <= n_files


def test_a_program_notices_nothing_of_the_library(small, folder):
    """Signals, the umask, the working directory, the standard streams and the locale stay as they are."""
    def state():
        with open('/proc/self/status', encoding='ascii') as file:
            kept = [line for line in file if line.startswith(('Umask', 'SigBlk', 'SigIgn', 'SigCgt', 'Threads'))]
        return kept, os.getcwd(), sorted(os.listdir('/proc/self/fd')), os.umask(os.umask(0o22) or 0)
    os.umask(0o22)
    before = state()
    with Checkpoint(small) as checkpoint:
        checkpoint.save(folder / 'x.pth')
        assert (folder / 'x.pth').stat().st_mode & 0o777 == 0o644 & (small.stat().st_mode | 0o600)
    assert state() == before


def test_the_library_has_every_function_of_its_header():
    assert len(DECLARED) > 40 and all(getattr(LIBRARY, name) for name in DECLARED)
