# SPDX-License-Identifier: MIT
"""The program: ``python -m weightfs`` and the script ``weightfs`` become it."""
import os
import sys

from weightfs._program import path


def main():
    program = path()
    os.execv(program, [program] + sys.argv[1:])


if __name__ == '__main__':
    main()
