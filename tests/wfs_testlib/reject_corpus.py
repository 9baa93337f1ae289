# SPDX-License-Identifier: MIT
"""A folder of rejected files that a script makes: written anew, or compared with what the script would write."""
import os
import sys


def present(folder):
    result = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), 'rb') as file:
            result[name] = file.read()
    return result


def main(folder, wanted, n_cases):
    """wanted: {name: bytes} of all files."""
    if '--check' in sys.argv[1:]:
        sys.exit(0 if present(folder) == wanted else '%s is not what %s makes' % (os.path.relpath(folder), sys.argv[0]))
    os.makedirs(folder, exist_ok=True)
    for name in set(os.listdir(folder)) - set(wanted):
        os.remove(os.path.join(folder, name))
    for name, content in wanted.items():
        with open(os.path.join(folder, name), 'wb') as file:
            file.write(content)
    print('%d cases' % n_cases)
