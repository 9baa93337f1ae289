# SPDX-License-Identifier: MIT
"""Mistakes that people make on a command line: one line, which names what is wrong and what to do, and the exit code of its kind."""
import re

import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_FOREIGN, EXIT_MOUNT, EXIT_RULES, EXIT_SOURCE, EXIT_USAGE, weightfs

# arguments, exit code, what the line begins with
ROWS = [
    ('lss f', EXIT_USAGE, "no verb 'lss'; did you mean 'ls'?"),
    ('mount f m', EXIT_USAGE, "'mount' is not a verb: use 'weightfs SOURCE MOUNTPOINT'"),
    ('f', EXIT_USAGE, "missing MOUNTPOINT; to inspect a file use a verb, such as 'weightfs info FILE'"),
    ('', EXIT_USAGE, 'missing VERB or SOURCE'),
    ('f m --output=x', EXIT_USAGE, "unknown option '--output=x'; a mount takes -f, -d, -s and -o OPTION,..., as in -o output=x"),
    ('ls --limit f', EXIT_USAGE, "--limit needs NAME=N, not 'f'"),
    ('cat f', EXIT_USAGE, 'missing KEY; usage: weightfs cat SOURCE KEY'),
    ('ls --remap nosuch= f', EXIT_RULES, "remap: 'nosuch=' is not of the form s/REGEX/TEXT/ (the shell has taken an unquoted > away)"),
    ('ls --include *.weight f', EXIT_RULES, "include: bad regex '*.weight': quantifier does not follow a repeatable item (a regex is "
     "expected, not a glob; try '\\.weight$')"),
    ('ls --where rank=2 f', EXIT_RULES, "where: bad condition 'rank=2': expected ==, !=, <, <=, > or >= after 'rank', found '=2'"),
    ('ls --include nosuch f', EXIT_RULES, "f: include='nosuch' matches none of 3 tensors"),
    ('ls --transpose x f', EXIT_RULES, "f: cannot transpose 'x' (F32 [4]): it has only one dimension"),
    ('ls --permute w:0,2 f', EXIT_RULES, "permute: '0,2' is not a permutation: each number from 0 to 1 must occur once"),
    ('ls --split w:a,b,c f', EXIT_RULES, "f: cannot split 'w' (F32 [4, 4]): 4 is not divisible into 3 equal parts"),
    ('ls --cast F17 f', EXIT_RULES, "cast: unknown dtype 'F17'; known are F64, F32"),
    ('convert --format gguf f x', EXIT_USAGE, '--format must be one of '),
    ('ls --to jax f', EXIT_RULES, "to: must be burn, torch or none, not 'jax'"),
    ('ls --rules text f', EXIT_RULES, "rules file 'text', line 1: '[' or '{' expected near 'print'"),
    ('f m -o files=numpy', EXIT_USAGE, "mount option 'files=numpy': the value must be one of 'raw', 'npy'"),
    ('f m -o output=', EXIT_USAGE, "mount option 'output=' needs a value"),
    ('convert f g', EXIT_USAGE, "cannot infer the format from the name 'g': use --format, or 'NAME/' for a directory of shards"),
    ('convert f there.safetensors', EXIT_COMMIT, 'there.safetensors: already exists (use --overwrite to replace it)'),
    ('commit nosuch', EXIT_MOUNT, 'nosuch: no such directory'),
    ('umount f', EXIT_MOUNT, 'f: is not a weightfs mount point'),
    ('commit .', EXIT_MOUNT, '.: is not a weightfs mount point'),
    ('ls cut.safetensors', EXIT_DAMAGED, 'cut.safetensors: InvalidHeaderLength: truncated: the header ends at byte '),
    ('ls flax.msgpack', EXIT_FOREIGN, 'flax.msgpack: is a msgpack file (Flax?), a format that weightfs does not read'),
    ('ls a.npz', EXIT_FOREIGN, 'a.npz: is a NumPy archive (.npz), not a checkpoint'),
    ('ls https://example.org/a.safetensors', EXIT_SOURCE, 'https://example.org/a.safetensors: cannot open it: URLs are not read; download it first'),
    ('ls -', EXIT_SOURCE, '-: is not a regular file: save what the pipe has to one first'),
]


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp('mistakes')
    st.write(folder / 'f', {'w': ('F32', [4, 4], bytes(64)), 'x': ('F32', [4], bytes(16)), 'y': ('F32', [4], bytes(16))})
    (folder / 'm').mkdir()
    (folder / 'text').write_text('print(1)\n')
    (folder / 'there.safetensors').write_bytes(b'')
    (folder / 'cut.safetensors').write_bytes((folder / 'f').read_bytes()[:100])
    (folder / 'flax.msgpack').write_bytes(b'\x81\xa6params\x80')
    numpy.savez(folder / 'a.npz', a=numpy.zeros(3))
    return folder


@pytest.mark.parametrize('command, code, text', ROWS, ids=[row[0] or 'nothing' for row in ROWS])
def test_each_mistake(place, command, code, text):
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    words = command.split()
    if code in (EXIT_USAGE, EXIT_MOUNT) and not re.search(r'libfuse \d', weightfs('--version').stdout):
        pytest.skip('the program was built without the mount')
    done = weightfs(*words, code=code, cwd=place, **({'stdin': None, 'input': b'x'} if '-' in words else {}))
    assert done.error.startswith(text)
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()} == before
