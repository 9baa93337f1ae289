# SPDX-License-Identifier: MIT
"""How programs put new bytes into a file, call by call."""
import os

def beside_and_over(path, data):
    other = path.with_name(path.name + '.tmp')
    other.write_bytes(data)
    os.rename(other, path)


def hidden_and_over(path, data):
    other = path.with_name('.' + path.name + '.x7')
    other.write_bytes(data)
    os.rename(other, path)


def backup_and_anew(path, data):
    backup = path.with_name(path.name + '~')
    os.rename(path, backup)
    path.write_bytes(data)
    backup.unlink()


def remove_and_anew(path, data):
    path.unlink()
    path.write_bytes(data)


def in_place(path, data):
    swap = path.with_name('.%s.swp' % path.name)
    swap.write_bytes(b'b0nano')
    with open(path, 'r+b') as file:
        file.truncate(0)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def linked_and_over(path, data):
    backup = path.with_name(path.name + '.bak')
    os.link(path, backup)
    beside_and_over(path, data)
    backup.unlink()


WAYS = [beside_and_over, hidden_and_over, backup_and_anew, remove_and_anew, in_place, linked_and_over]
