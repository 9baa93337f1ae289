# SPDX-License-Identifier: MIT
"""weightfs.h by ctypes, as a program of somebody else would use it. The types of all functions are read from the header."""
import ctypes as c
import json
import os
import re

from wfs_testlib.program import BUILD, ROOT


class Error(c.Structure):
    _fields_ = [('code', c.c_int), ('text', c.c_char * 2048)]


class Slice(c.Structure):
    _fields_ = [('start', c.c_uint64), ('count', c.c_uint64), ('step', c.c_int64)]


PROGRESS = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_uint64)
NOTICE = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class Options(c.Structure):
    _fields_ = [('size', c.c_size_t), ('texts', c.POINTER(c.c_char_p)), ('n_texts', c.c_size_t), ('progress', PROGRESS), ('notice', NOTICE),
                ('ctx', c.c_void_p)]


class Failure(Exception):
    def __init__(self, error):
        super().__init__(error.text.decode())
        self.code = error.code


HEADER = (ROOT / 'include/weightfs.h').read_text()
# Every function: its result, and its parameters as words of C.
DECLARED = {name: (result.strip(), [' '.join(word.split()) for word in parameters.split(',')]) for result, name, parameters in
            re.findall(r'^((?:const )?\w+ \*?)(wfs_\w+)\(([^)]*)\);', re.sub(r'(struct) (\w+)', r'\2', HEADER), re.M)}
TYPES = {'int': c.c_int, 'void': None, 'size_t': c.c_size_t, 'uint64_t': c.c_uint64, 'int64_t': c.c_int64, 'const char *': c.c_char_p}


def _type_of(word):
    return next((kind for name, kind in TYPES.items() if kind is not None and re.fullmatch(re.escape(name) + r' ?\w*', word)), c.c_void_p)


def load():
    library = c.CDLL(str(BUILD / 'src/libweightfs.so'))
    for name, (result, parameters) in DECLARED.items():
        function = getattr(library, name)
        function.restype = TYPES.get(result, c.c_void_p)
        function.argtypes = [] if parameters == ['void'] else [_type_of(word) for word in parameters]
    library.wfs_checkpoint_keys.restype = c.c_void_p  # it has NULs
    return library


LIBRARY = load()


def call(name, *arguments):
    """Calls a function whose last parameter is the error; its result, or a Failure."""
    error = Error(12345, b'not initialised')
    result = getattr(LIBRARY, name)(*arguments, c.byref(error))
    if result < 0:
        assert error.code == -result and 0 < len(error.text) and b'\n' not in error.text
        raise Failure(error)
    assert error.code == 0, 'a function that succeeds clears the error'
    return result


def text_of(name, *arguments):
    """The same for a function that makes JSON."""
    made = c.c_void_p()
    call(name, *arguments, c.byref(made))
    text = c.string_at(made).decode()
    LIBRARY.wfs_free(made)
    assert text.endswith('\n')
    return json.loads(text)


def options(*texts, progress=None, notices=None):
    array = (c.c_char_p * max(1, len(texts)))(*map(os.fsencode, texts))
    made = Options(c.sizeof(Options), array, len(texts))
    if progress:
        made.progress = PROGRESS(lambda ctx, done, total: progress(done, total))
    if notices is not None:
        made.notice = NOTICE(lambda ctx, text: notices.append(text.decode()))
    made.kept = array
    return c.byref(made)


class Tensor:
    def __init__(self, pointer):
        self.pointer = pointer

    def get(self, what, *arguments):
        found = getattr(LIBRARY, 'wfs_tensor_' + what)(self.pointer, *arguments)
        return found.decode() if isinstance(found, bytes) else found

    @property
    def shape(self):
        dims = c.POINTER(c.c_uint64)()
        return [dims[i] for i in range(LIBRARY.wfs_tensor_shape(self.pointer, c.byref(dims)))]

    def read(self, offset=0, n_bytes=None, given=None):
        n_bytes = self.get('n_bytes') if n_bytes is None else n_bytes
        buffer = c.create_string_buffer(n_bytes + 1)
        n_read = call('wfs_read', self.pointer, offset, buffer, n_bytes, given)
        return buffer.raw[:n_read]

    def read_slice(self, slices=(), dtype=None, n_bytes=None, given=None):
        """slices: (start, count, step) each."""
        array = (Slice * max(1, len(slices)))(*[Slice(*part) for part in slices])
        dtype = dtype and dtype.encode()
        needed = call('wfs_read_slice', self.pointer, array, len(slices), dtype, None, 0, given)
        buffer = c.create_string_buffer(b'?' * (needed + 1))
        n_bytes = needed if n_bytes is None else n_bytes
        assert call('wfs_read_slice', self.pointer, array, len(slices), dtype, buffer, n_bytes, given) == needed
        assert buffer.raw[needed:needed + 1] == b'?'
        return buffer.raw[:needed]


class Checkpoint:
    def __init__(self, path=None, *texts, **callbacks):
        self.pointer = c.c_void_p()
        if path is None:
            call('wfs_new', c.byref(self.pointer))
        else:
            call('wfs_open', os.fsencode(path), options(*texts, **callbacks), c.byref(self.pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIBRARY.wfs_close(self.pointer)

    def keys(self):
        n_bytes = c.c_size_t()
        keys = LIBRARY.wfs_checkpoint_keys(self.pointer, c.byref(n_bytes))
        return c.string_at(keys, n_bytes.value).decode().split('\0')[:-1]

    def __len__(self):
        return LIBRARY.wfs_checkpoint_n_tensors(self.pointer)

    def tensor(self, i):
        return Tensor(c.c_void_p(LIBRARY.wfs_checkpoint_tensor(self.pointer, i)))

    def __getitem__(self, key):
        found = c.c_void_p()
        call('wfs_checkpoint_find', self.pointer, os.fsencode(key), c.byref(found))
        return Tensor(found)

    def tensors(self):
        return {tensor.get('key'): tensor for tensor in map(self.tensor, range(len(self)))}

    def save(self, target, *texts, edits=None, **callbacks):
        return text_of('wfs_checkpoint_save', self.pointer, edits and edits.pointer, os.fsencode(target), options(*texts, **callbacks))


class Edits:
    def __init__(self, checkpoint):
        self.pointer = c.c_void_p()
        self.kept = []
        call('wfs_edits_new', checkpoint.pointer, c.byref(self.pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIBRARY.wfs_edits_free(self.pointer)

    def do(self, what, *arguments):
        return call('wfs_edits_' + what, self.pointer, *[word.encode() if isinstance(word, str) else word for word in arguments])

    def put(self, key, dtype, shape, content):
        self.kept.append(content)
        return self.do('put', key, dtype, (c.c_uint64 * max(1, len(shape)))(*shape), len(shape), content, len(content))

    def list(self):
        return text_of('wfs_edits_list', self.pointer)
