# SPDX-License-Identifier: MIT
"""Calls of the library: options as texts, callbacks, errors as exceptions."""
import json
import os
import threading
import warnings

from weightfs import _errors
from weightfs._native import ffi, lib

ASK, TELL = ffi.addressof(lib, 'weightfs_ask'), ffi.addressof(lib, 'weightfs_tell')


def text_of(value):
    """Returns a path or text as the library takes it."""
    return value if isinstance(value, bytes) else os.fspath(value).encode('utf-8', 'surrogateescape')


def text_from(value):
    """Returns a text of the library; None: it is NULL. Keys of pickles can have lone surrogates."""
    return None if value == ffi.NULL else ffi.string(value).decode('utf-8', 'surrogatepass')


def key_of(key):
    """Returns a key as the library takes it."""
    if not isinstance(key, str):
        raise TypeError('a key is a text, not %s' % type(key).__name__)
    if '\0' in key:
        raise _errors.MissingKeyError('no key has a NUL character: %r' % key)
    return key.encode('utf-8', 'surrogatepass')


def spell(options):
    """Returns options as texts, as the program spells them: ``cast='F16'``, ``force=True``, ``include=['a', 'b']``, ``limit={'tensors': 9}``."""
    texts = []
    for name, value in options.items():
        if isinstance(value, dict):
            value = ['%s=%s' % pair for pair in value.items()]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                texts.append(name)
            elif one is not None and one is not False:
                texts.append('%s=%s' % (name, os.fspath(one) if isinstance(one, os.PathLike) else one))
    return texts


class Call:
    """What a call is given besides its operands, and its error. ``progress(done, total)`` is called with bytes. What it raises stops the call and goes
    on to the caller; so does Ctrl-C in the main thread."""

    def __init__(self, options=None, progress=None, notices=True):
        self.error = ffi.new('struct wfs_error *')
        self.progress, self.exception, self.lines = progress, None, []
        self.options = ffi.new('struct wfs_options *')
        self.options.size = ffi.sizeof('struct wfs_options')
        if options:
            self.texts = [ffi.new('char[]', text.encode('utf-8', 'surrogateescape')) for text in spell(options)]
            self.list = ffi.new('char *[]', self.texts)
            self.options.texts, self.options.n_texts = ffi.cast('const char *const *', self.list), len(self.texts)
        asks = progress is not None or threading.current_thread() is threading.main_thread()
        if asks or notices:
            self.handle = ffi.new_handle(self)
            self.asking = ffi.new('struct weightfs_asking *', [0, self.handle])
            self.options.ctx = self.asking
        if asks:
            self.options.progress = ASK
        if notices:
            self.options.notice = TELL

    def check(self, code):
        """Returns the result of a function, or raises what it reports."""
        self.handle = None  # which refers to this object
        if self.exception is not None:
            raise self.exception
        if code < 0:
            raise _errors.of_code(self.error.code or -code, text_from(self.error.text) or os.strerror(-code))
        return code

    def warn(self, level):
        """Gives the notices to the module warnings, as of the caller that is so many levels up."""
        for line in self.lines:
            warnings.warn(line, _errors.Notice, stacklevel=level + 1)


def keep(_kind, value, traceback):
    """Keeps what a callback raised, such as KeyboardInterrupt wherever that comes, for the caller of the library."""
    ffi.from_handle(traceback.tb_frame.f_locals['handle']).exception = value


@ffi.def_extern(error=1, onerror=keep)
def weightfs_progress(handle, n_done, n_total):
    """Lets Python handle signals, too. Two zeros only ask whether to go on."""
    call = ffi.from_handle(handle)
    if call.progress is not None and (n_done or n_total):
        call.progress(n_done, n_total)
    return 0


@ffi.def_extern()
def weightfs_notice(handle, text):
    ffi.from_handle(handle).lines.append(text_from(text))


def json_of(function, *arguments):
    """Calls a function whose last two parameters are a new text of JSON and the error. One of the arguments may be a Call, which stands for its options."""
    call = next((argument for argument in arguments if isinstance(argument, Call)), None) or Call(notices=False)
    text = ffi.new('char **')
    call.check(function(*(argument.options if argument is call else argument for argument in arguments), text, call.error))
    try:
        return json.loads(ffi.string(text[0]).decode('utf-8', 'surrogatepass'))
    finally:
        lib.wfs_free(text[0])
