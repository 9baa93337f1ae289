# SPDX-License-Identifier: MIT
"""File handles: name_to_handle_at(2) and open_by_handle_at(2), which NFS servers use."""
import ctypes
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
N_BYTES = 128
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_RDONLY, MS_REMOUNT = 2, 4, 8, 1, 32


class Handle(ctypes.Structure):
    """struct file_handle. Of FUSE: number and generation, each as 32-bit words, the higher half first."""
    _fields_ = [('n_bytes', ctypes.c_uint), ('type', ctypes.c_int), ('bytes', ctypes.c_ubyte * N_BYTES)]

    @property
    def number(self):
        high, low = struct.unpack_from('=II', bytes(self.bytes))
        return high << 32 | low

    @property
    def generation(self):
        return struct.unpack_from('=I', bytes(self.bytes), 8)[0]

    def forged(self, number=None, generation=None):
        """The same with another number or generation."""
        number = self.number if number is None else number
        generation = self.generation if generation is None else generation
        words = struct.pack('=III', number >> 32, number & 0xffffffff, generation)
        return Handle(12, 0x81, (ctypes.c_ubyte * N_BYTES)(*words))


def handle_of(path):
    handle, mount_id = Handle(n_bytes=N_BYTES), ctypes.c_int()
    if LIBC.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0) < 0:
        raise OSError(ctypes.get_errno(), 'name_to_handle_at', os.fspath(path))
    return handle


def open_handle(mnt, handle, flags=os.O_RDONLY):
    """A descriptor; the handle is one of the filesystem that is mounted at `mnt`."""
    top = os.open(mnt, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fd = LIBC.open_by_handle_at(top, ctypes.byref(handle), flags | os.O_CLOEXEC)
    finally:
        os.close(top)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def read_handle(mnt, handle):
    with open(open_handle(mnt, handle), 'rb') as file:
        return file.read()


def make_kernel_forget(mnt, *flags):
    """A remount drops all names and inodes that are not in use, which memory pressure does sooner or later."""
    wanted = MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC
    for flag in flags:
        wanted |= flag
    if LIBC.mount(None, os.fsencode(mnt), None, wanted, None) < 0:
        raise OSError(ctypes.get_errno(), 'remount', os.fspath(mnt))
