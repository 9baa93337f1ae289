# SPDX-License-Identifier: MIT
"""Each kind of edit that a mount knows, by name, and what a person sees of a mount: for tests that make an edit and look."""
import ctypes
import os
import shutil

from wfs_testlib import st
from wfs_testlib.program import tool

ATTRIBUTES = ['dtype', 'shape', 'key', 'param_id', 'source_key']
TENSORS = {
    'a.b.weight': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)),
    'a.b.bias': ('F32', [3], st.f32(7, 8, 9)),
    'a.c': ('F32', [2], st.f32(1, 1)),
    'd.weight': ('F32', [4], st.f32(1, 2, 3, 4)),
    'step': ('F32', [1], st.f32(42)),
    'keep': ('F32', [4], st.f32(1, 2, 3, 4)),
}


def look(root):
    """What a person sees of a mount: names, links, contents, sizes, times of files, dtypes and shapes, metadata."""
    seen = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            shown = os.path.relpath(path, root)
            if name in folders:
                seen[shown] = 'directory', stat.st_nlink
                continue
            named = {key: os.getxattr(path, 'user.weightfs.' + key) for key in ATTRIBUTES if has(path, key)}
            with open(path, 'rb') as file:
                seen[shown] = stat.st_ino, stat.st_nlink, stat.st_size, stat.st_mtime_ns, oct(stat.st_mode), named, file.read()
    with open(os.path.join(root, '.weightfs/metadata.json'), 'rb') as file:
        seen['metadata'] = file.read()
    return seen


def has(path, key):
    try:
        os.getxattr(path, 'user.weightfs.' + key)
        return True
    except OSError:
        return False


def steady(seen):
    """Without what lasts only until the unmount, or differs for files that are not of the checkpoint."""
    return {name: one if not isinstance(one, tuple) or len(one) < 7 else (*one[1:3], one[5], one[6]) for name, one in seen.items()}


def write(mnt, name, data):
    with open(mnt / name, 'r+b') as file:
        file.write(data)


def replace(mnt, name):
    shutil.copyfile(mnt / 'd/weight', mnt / '.new')
    os.rename(mnt / '.new', mnt / name)


def exchange_names(one, other):
    """renameat2 with RENAME_EXCHANGE, in this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def exchange(mnt, one, other):
    """renameat2 with RENAME_EXCHANGE."""
    code = ('import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n'
            'sys.exit(libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2) and ctypes.get_errno())')
    tool('/usr/bin/python3', '-SEc', code, mnt / one, mnt / other)


EDITS = {  # what is done, and one path whose edits that is
    'write': (lambda mnt: write(mnt, 'a/b/weight', b'\xff' * 4), 'a/b/weight'),
    'truncate': (lambda mnt: os.truncate(mnt / 'a/b/weight', 8), 'a/b/weight'),
    'grow': (lambda mnt: os.truncate(mnt / 'a/b/weight', 800), 'a/b/weight'),
    'dtype': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.weightfs.dtype', b'I32'), 'a/c'),
    'shape': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.weightfs.shape', b'[1, 2]'), 'a/c'),
    'param_id': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.weightfs.param_id', b'7'), 'a/c'),
    'foreign': (lambda mnt: os.setxattr(mnt / 'a/c', 'user.note', b'x'), 'a/c'),
    'mode': (lambda mnt: os.chmod(mnt / 'a/c', 0o600), 'a/c'),
    'time': (lambda mnt: os.utime(mnt / 'a/c', (1, 1)), 'a/c'),
    'remove': (lambda mnt: os.unlink(mnt / 'a/b/bias'), 'a/b/bias'),
    'rename': (lambda mnt: os.rename(mnt / 'a/b/bias', mnt / 'a/moved'), 'a/moved'),
    'rename, by its old name': (lambda mnt: os.rename(mnt / 'a/b/bias', mnt / 'a/moved'), 'a/b/bias'),
    'rename over another': (lambda mnt: os.rename(mnt / 'a/c', mnt / 'step'), 'step'),
    'rename over another, by its old name': (lambda mnt: os.rename(mnt / 'a/c', mnt / 'step'), 'a/c'),
    'exchange': (lambda mnt: exchange(mnt, 'a/c', 'step'), 'a/c'),
    'exchange of a directory': (lambda mnt: exchange(mnt, 'a/b', 'step'), 'step'),
    'replace': (lambda mnt: replace(mnt, 'a/c'), 'a/c'),
    'remove and create': (lambda mnt: (os.unlink(mnt / 'a/c'), (mnt / 'a/c').write_bytes(b'12345678')), 'a/c'),
    'rename a directory': (lambda mnt: os.rename(mnt / 'a', mnt / 'z'), 'z'),
    'remove a directory': (lambda mnt: shutil.rmtree(mnt / 'a'), 'a'),
    'remove a directory and make it again': (lambda mnt: (shutil.rmtree(mnt / 'a'), os.makedirs(mnt / 'a/b')), 'a'),
    'a directory in a renamed one': (lambda mnt: (os.rename(mnt / 'a', mnt / 'z'), os.rename(mnt / 'd', mnt / 'z/d')), 'z'),
    'create': (lambda mnt: (mnt / 'new').write_bytes(b'1234'), 'new'),
    'create below a new directory': (lambda mnt: (os.mkdir(mnt / 'new'), (mnt / 'new/one').write_bytes(b'1234')), 'new'),
    'link': (lambda mnt: os.link(mnt / 'a/c', mnt / 'again'), 'again'),
    'link and remove': (lambda mnt: (os.link(mnt / 'a/c', mnt / 'again'), os.unlink(mnt / 'a/c')), 'again'),
    'scratch': (lambda mnt: (mnt / '.swp').write_bytes(b'1234'), '.swp'),
    'metadata': (lambda mnt: (mnt / '.weightfs/metadata.json').write_bytes(b'{"by": "me"}'), '.weightfs/metadata.json'),
    'metadata, as an attribute': (lambda mnt: os.setxattr(mnt.path, 'user.weightfs.metadata.by', b'me'), '.weightfs/metadata.json'),
    'metadata, replaced': (lambda mnt: ((mnt / '.weightfs/x').write_bytes(b'{}'), os.rename(mnt / '.weightfs/x', mnt / '.weightfs/metadata.json')),
                           '.weightfs/metadata.json'),
}
VALUES = {
    'value': (lambda mnt: (mnt / 'epoch.json').write_text('4'), 'epoch.json'),
    'removed value': (lambda mnt: os.unlink(mnt / 'epoch.json'), 'epoch.json'),
    'renamed value': (lambda mnt: os.rename(mnt / 'epoch.json', mnt / 'a/time.json'), 'a/time.json'),
    'new value': (lambda mnt: (mnt / 'more.json').write_text('[1]'), 'more.json'),
}


def kinds(made):
    return {**EDITS, **(VALUES if made.ending == 'pth' else {})}
