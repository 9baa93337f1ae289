# SPDX-License-Identifier: MIT
"""Staging directories as they are on the disk, written without the program."""
import os


def stage_of(out):
    return out.parent / ('.%s.weightfs' % out.name)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def journal(*texts, first=1):
    lines = []
    for i, text in enumerate(texts, first):
        body = b'%d %s' % (i, text.encode())
        lines.append(b'%08x %s\n' % (crc32c(body), body))
    return b''.join(lines)


def plant(output, records, base=''):
    stage = stage_of(output)
    stage.mkdir(mode=0o700)
    (stage / 'journal').write_bytes(journal(*records))
    (stage / 'base').write_text('weightfs-base 1\n' + base)
    return stage


def everything_but(root, *places):
    """Path -> what is there, of all that lies elsewhere."""
    found = {}
    for path in sorted(root.rglob('*')):
        if any(path == place or place in path.parents for place in places):
            continue
        now = path.lstat()
        found[path] = (now.st_mode, now.st_ino, os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None)
    return found
