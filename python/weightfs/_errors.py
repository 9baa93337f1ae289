# SPDX-License-Identifier: MIT
"""Exceptions. Their texts are the messages of the program."""
import errno
import os


class Error(Exception):
    """What the library reports. ``code`` is an errno."""
    code = 0

    def __init__(self, text, code=0):
        super().__init__(text)
        self.text, self.code = text, code

    def __str__(self):
        return self.text

    def __reduce__(self):
        return type(self), (self.text, self.code)


class FormatError(Error, ValueError):
    """The file is not a checkpoint, or damaged, or of a kind that is not supported, or over a limit."""


class UsageError(Error, ValueError):
    """An option, a dtype, a slice or an edit that cannot be."""


class MissingKeyError(Error, KeyError):
    """No tensor or value has that key; the text suggests others."""


class MountError(Error):
    """A mount failed, or could not be saved at its end."""


class Stopped(Error):
    """The call was stopped before its end; nothing of it is left."""


class FileError(Error, OSError):
    """A file that cannot be opened, read or written."""

    def __init__(self, text, code=0):
        Error.__init__(self, text, code)
        self.errno, self.strerror = code, text


class NotFoundError(FileError, FileNotFoundError):
    """There is no such file."""


class ExistsError(FileError, FileExistsError):
    """The output exists; ``overwrite=True`` replaces it."""


class DeniedError(FileError, PermissionError):
    """The rights are missing."""


class Notice(UserWarning):
    """What the program prints as a notice: nothing failed, but it is worth knowing."""


CLASSES = {
    errno.EBADMSG: FormatError, errno.EMEDIUMTYPE: FormatError, errno.EOPNOTSUPP: FormatError, errno.E2BIG: FormatError,
    errno.EINVAL: UsageError, errno.EFBIG: UsageError, errno.ENOKEY: MissingKeyError, errno.EINTR: Stopped,
    errno.ENOENT: NotFoundError, errno.EEXIST: ExistsError, errno.EACCES: DeniedError, errno.EPERM: DeniedError,
}
# Exit codes of the program, which runs mounts and draws.
EXITS = {2: UsageError, 4: FormatError, 5: FormatError, 6: FormatError, 7: MissingKeyError, 8: MountError}


def of_code(code, text):
    """Returns the exception for an errno."""
    return MemoryError(text) if code == errno.ENOMEM else CLASSES.get(code, FileError)(text, code)


def of_exit(exit_code, text):
    """Returns the exception for an exit code of the program and what it printed."""
    text = '\n'.join(line[len('weightfs: '):] if line.startswith('weightfs: ') else line for line in text.strip().split('\n'))
    if exit_code in EXITS:
        return EXITS[exit_code](text)
    if ' already exists' in text:
        return of_code(errno.EEXIST, text)
    # Other messages about files end with what the system said.
    return of_code(next((code for code in CLASSES if text.endswith(os.strerror(code))), errno.EIO), text)
