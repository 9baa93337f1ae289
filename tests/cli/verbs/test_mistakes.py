# SPDX-License-Identifier: MIT
"""Mistakes that people make on a command line: one line, which names what is wrong and what to do, and the exit code of its kind."""
import os
import re

import numpy
import pytest

from wfs_testlib import disks, pth, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_FOREIGN, EXIT_MOUNT, EXIT_RULES, EXIT_SOURCE, EXIT_USAGE, tool, weightfs

# arguments, exit code, what the line begins with
ROWS = [
    ('lss f', EXIT_USAGE, "no verb 'lss'; did you mean 'ls'?"),
    ('mount f m', EXIT_USAGE, "'mount' is not a verb: use 'weightfs SOURCE MOUNTPOINT'"),
    ('f', EXIT_USAGE, "missing MOUNTPOINT; to inspect a file use a verb, such as 'weightfs info FILE'"),
    ('', EXIT_USAGE, 'missing VERB or SOURCE'),
    ('f m --output=x', EXIT_USAGE, "unknown option '--output=x'; a mount takes -f, -d, -s, -v and -o OPTION,..., as in -o output=x"),
    ('ls --limit f', EXIT_USAGE, "--limit needs NAME=N, not 'f'"),
    ('cat f', EXIT_USAGE, 'missing KEY; usage: weightfs cat SOURCE KEY'),
    ('ls --remap nosuch= f', EXIT_RULES, "--remap: 'nosuch=' is not of the form s/REGEX/TEXT/ (the shell has taken an unquoted > away)"),
    ('ls --include *.weight f', EXIT_RULES, "--include: bad regex '*.weight': quantifier does not follow a repeatable item (a regex is "
     "expected, not a glob; try '\\.weight$')"),
    ('ls --where rank=2 f', EXIT_RULES, "--where: bad condition 'rank=2': expected ==, !=, <, <=, > or >= after 'rank', found '=2'"),
    ('ls --include nosuch f', EXIT_RULES, "f: include='nosuch' matches none of 3 tensors"),
    ('ls --transpose x f', EXIT_RULES, "f: cannot transpose 'x' (F32 [4]): it has only one dimension"),
    ('ls --permute w:0,2 f', EXIT_RULES, "--permute: '0,2' is not a permutation: each number from 0 to 1 must occur once"),
    ('ls --split w:a,b,c f', EXIT_RULES, "f: cannot split 'w' (F32 [4, 4]): 4 is not divisible into 3 equal parts"),
    ('ls --cast F17 f', EXIT_RULES, "--cast: unknown dtype 'F17'; known are F64, F32"),
    ('convert --format onnx f x', EXIT_USAGE, '--format must be one of '),
    ('ls --to jax f', EXIT_RULES, "--to: must be burn, torch or none, not 'jax'"),
    ('ls --rules text f', EXIT_RULES, "rules file 'text', line 1: '[' or '{' expected near 'print'"),
    ('f m -o files=numpy', EXIT_USAGE, "mount option 'files=numpy': the value must be one of 'raw', 'npy'"),
    ('f m -o output=', EXIT_USAGE, "mount option 'output=' needs a value"),
    ('convert f g', EXIT_USAGE, "cannot infer the format from the name 'g': use --format, or 'NAME/' for a directory of shards"),
    ('convert f there.safetensors', EXIT_COMMIT, 'there.safetensors: already exists (use --overwrite to replace it)'),
    ('commit nosuch', EXIT_MOUNT, 'nosuch: no such directory'),
    ('umount f', EXIT_MOUNT, 'f: is not a weightfs mount point'),
    ('commit .', EXIT_MOUNT, '.: is not a weightfs mount point'),
    ('ls cut.safetensors', EXIT_DAMAGED, 'cut.safetensors: truncated: the header ends at byte '),
    ('ls flax.msgpack', EXIT_FOREIGN, 'flax.msgpack: is a msgpack file (Flax?), a format that weightfs does not read'),
    ('ls a.npz', EXIT_FOREIGN, 'a.npz: is a NumPy archive (.npz), not a checkpoint'),
    ('ls ftp://example.org/a.safetensors', EXIT_SOURCE,
     'ftp://example.org/a.safetensors: cannot open it: URLs of this kind are not read, only https, http, s3 and hf; download it first'),
    ('ls --where dtype==F17 f', EXIT_RULES, "--where: bad condition 'dtype==F17': unknown dtype 'F17'"),
    ('ls --include w --strict --exclude nosuch f', EXIT_RULES, 'f: --strict: nosuch: this exclude matches no key'),
    ('convert --format torch f x', EXIT_USAGE, "--format must be one of "),
    ('convert --like p.pth f x.safetensors', EXIT_RULES, "f: --like: 1 tensor is missing, first 'v'; use the option 'partial' to accept that"),
    ('convert f f', EXIT_USAGE, "cannot infer the format from the name 'f': use --format"),
    ('convert s.safetensors s.safetensors', EXIT_COMMIT, 's.safetensors: would overwrite the source (use --overwrite to do that)'),
    ('convert f new/', EXIT_USAGE, "cannot infer the format of 'new/' from the name of its source: use --format with burnpack, safetensors, "),
    ('f m -o output=new/', EXIT_USAGE, "f: cannot infer the format of 'new/' from the name of its source: use -o format=NAME, with "),
    ('f m -o output=new', EXIT_USAGE, "f: cannot infer the format from the name 'new': use -o format=NAME, or 'new/' for a directory of shards"),
    ('f m -o output=there.safetensors', EXIT_MOUNT, "f: output 'DIR/there.safetensors' already exists; use -o overwrite to replace it"),
    ('config p.pth optimizer.lrr', EXIT_RULES, "p.pth: no value is called 'optimizer.lrr'; 'optimizer' has lr, groups"),
    ('config p.pth optimizer.groups.a.c', EXIT_RULES, "p.pth: no value is called 'optimizer.groups.a.c'; 'optimizer.groups.a' has b"),
    ('config p.pth optimizer.lr.x', EXIT_RULES, "p.pth: no value is called 'optimizer.lr.x'; there are optimizer, epoch"),
    ('config p.pth epo', EXIT_RULES, "p.pth: no value is called 'epo'; there are optimizer, epoch"),
    ('cat f ww', EXIT_RULES, "f: no tensor has the key 'ww'; did you mean 'w'?"),
    ('ls saved', EXIT_SOURCE, 'saved: is a TensorFlow SavedModel, a format that weightfs does not read'),
    ('ls hub', EXIT_SOURCE, "hub: is a Hugging Face cache: name a directory in the snapshots/ of one of: 'models--a--b'"),
    ('ls hub/models--a--b', EXIT_SOURCE, 'hub/models--a--b: is an entry of the Hugging Face cache: name a directory in its snapshots/'),
    ('ls zero', EXIT_SOURCE, 'zero: is a DeepSpeed checkpoint, whose parts weightfs does not join'),
    ('ls a.h5', EXIT_FOREIGN, 'a.h5: is an HDF5 file (Keras?), a format that weightfs does not read'),
    ('ls a.onnx', EXIT_FOREIGN, 'a.onnx: is an ONNX model, a format that weightfs does not read'),
    ('ls -', EXIT_SOURCE, '-: is not a regular file: save what the pipe has to one first'),
    ('s.safetensors ls', EXIT_USAGE, "the verb comes first: 'weightfs ls s.safetensors' (to mount on a new directory of that name, write './ls')"),
    ('s.safetensors convert x.pth', EXIT_USAGE, "the verb comes first: 'weightfs convert s.safetensors ...' (to mount on "),
    ('cat w f', EXIT_SOURCE, "w: cannot open it: No such file or directory; SOURCE comes first: weightfs cat SOURCE KEY"),
    ('config epoch p.pth', EXIT_SOURCE, 'epoch: cannot open it: No such file or directory; SOURCE comes first: weightfs config SOURCE [KEY]'),
    ('find w f', EXIT_SOURCE, 'w: cannot open it: No such file or directory; SOURCE comes first: weightfs find SOURCE WHAT...'),
    ('ls f w*x', EXIT_RULES, "f: no key matches 'w*x' (a glob matches whole keys: '*' takes the rest)"),
    ('ls f p.pt', EXIT_RULES, "f: no key matches 'p.pt'"),
    ('diff f f ww', EXIT_RULES, "f: no key matches 'ww'; did you mean 'w'?"),
    ('sum f ww', EXIT_RULES, "f: no key matches 'ww'; did you mean 'w'?"),
    ('status --watch', EXIT_USAGE, 'missing MOUNTPOINT; usage: weightfs status MOUNTPOINT'),
    ('show f *ight', EXIT_RULES, "f: no key matches '*ight' (a glob matches whole keys: '*' takes the rest)"),
    ('show --slice f w', EXIT_USAGE, "missing KEY, which --slice needs; usage: weightfs show SOURCE KEY..."),
    ('ls --tree --depth f', EXIT_USAGE, "missing SOURCE ('f' is the value of --depth); usage: weightfs ls SOURCE... [GLOB...]"),
    ('extract -d f', EXIT_USAGE, "missing SOURCE ('f' is the value of -d); usage: weightfs extract SOURCE [GLOB...]"),
    ('convert f -o x.pth', EXIT_USAGE, "unknown option '-o'; use 'weightfs convert f x.pth'"),
    ('edit f --output=x.pth --remove w', EXIT_USAGE, "unknown option '--output=x.pth'; use 'weightfs edit f --remove w x.pth'"),
    ('convert f x.onnx', EXIT_USAGE, "cannot infer the format from the name 'x.onnx': use --format, or 'NAME/' for a directory of "
     'shards; known are .bpk, .safetensors, '),
    ('edit f x.safetensors --rename w', EXIT_USAGE, "missing value of option '--rename': OLD NEW; see 'weightfs edit --help'"),
    ('find f dtype=F32', 1, "f: no tensor fits 'dtype=F32', as a part of the key; conditions compare with =="),
    ('patch foo', EXIT_USAGE, 'missing FILE; usage: weightfs patch make|show|apply FILE...'),
    ('patch foo x', EXIT_USAGE, "expected 'weightfs patch make|show|apply'; see 'weightfs patch --help'"),
    ('ls -lhX f', EXIT_USAGE, "unknown option '-lhX'; see 'weightfs ls --help'"),
    ('ls EMPTY', EXIT_USAGE, 'SOURCE is empty; usage: weightfs ls SOURCE... [GLOB...]'),
    ('convert f EMPTY', EXIT_USAGE, 'TARGET is empty; usage: weightfs convert SOURCE TARGET'),
    ('umount EMPTY', EXIT_USAGE, 'MOUNTPOINT is empty; usage: weightfs umount MOUNTPOINT'),
    ('EMPTY m', EXIT_USAGE, 'SOURCE is empty; usage: weightfs SOURCE MOUNTPOINT'),
    ('f EMPTY', EXIT_USAGE, 'MOUNTPOINT is empty; usage: weightfs SOURCE MOUNTPOINT'),
    ('f m output=x', EXIT_USAGE, "unexpected operand 'output=x' after SOURCE and MOUNTPOINT; mount options follow -o"),
    ('f m -o include', EXIT_USAGE, "mount option 'include' needs a value, as in include=VALUE"),
    ('f m -o output', EXIT_USAGE, "mount option 'output' needs a value, as in output=VALUE"),
    ('f m -o allow_others', EXIT_USAGE, "unknown mount option 'allow_others'; did you mean 'allow_other'?"),
    ('f m -o uid=me', EXIT_USAGE, "mount option 'uid=me' needs a decimal number"),
    ('f text', EXIT_MOUNT, "f: cannot mount on 'text': not a directory"),
    ('f nosuch/m', EXIT_MOUNT, "f: cannot mount on 'nosuch/m': No such file or directory"),
    ('f .', EXIT_MOUNT, "f: cannot mount on 'DIR': the source is inside it"),
    ('f m -o output=m/x.safetensors', EXIT_MOUNT, "f: cannot mount on 'DIR/m': the output is inside it"),
    ('f m -o output=nosuch/x.safetensors', EXIT_MOUNT, "f: cannot use output 'nosuch/x.safetensors': No such file or directory"),
    ('text m', EXIT_FOREIGN, 'text: is text, not a checkpoint: it begins with '),
    ('LS f', EXIT_USAGE, "no verb 'LS'; see 'weightfs --help'"),
    ('list f', EXIT_USAGE, "no verb 'list'; use 'weightfs ls f'"),
    ('-l f', EXIT_USAGE, "unknown option '-l'; a mount takes -f, -d, -s, -v and -o OPTION,..."),
    ('umount -f m', EXIT_USAGE, "unknown option '-f'; see 'weightfs umount --help'"),
    ('umount m m', EXIT_USAGE, "unexpected operand 'm'; see 'weightfs umount --help'"),
    ('status m', EXIT_MOUNT, 'm: is not a weightfs mount point'),
    ('discard m', EXIT_MOUNT, 'm: is not a weightfs mount point'),
    ('diff f', EXIT_USAGE, 'missing B; usage: weightfs diff A B'),
    ('cat f m x', EXIT_USAGE, "unexpected operand 'x'; see 'weightfs cat --help'"),
    ('cat f w/x', EXIT_RULES, "f: no tensor has the key 'w/x'"),
    ('ls m', EXIT_SOURCE, 'm: is a directory without a checkpoint'),
    ('ls empty', EXIT_FOREIGN, 'empty: is empty (0 bytes)'),
    ('ls a.png', EXIT_FOREIGN, 'a.png: is a PNG picture, not a checkpoint'),
    ('ls a.npy', EXIT_FOREIGN, 'a.npy: is a single NumPy array (.npy), not a checkpoint'),
    ('ls /dev/null', EXIT_SOURCE, '/dev/null: is not a regular file'),
    ('show none.safetensors w', EXIT_RULES, "none.safetensors: no tensor has the key 'w'"),
    ('ls --limit foo=1 f', EXIT_USAGE, "f: unknown limit 'foo'; known are: tensors header "),
    ('ls --tree --json f', EXIT_USAGE, '--tree cannot be combined with --json, --long or --sort'),
    ('ls --tree -l f', EXIT_USAGE, '--tree cannot be combined with --json, --long or --sort'),
    ('ls --tree --sort=size f', EXIT_USAGE, '--tree cannot be combined with --json, --long or --sort'),
    ('ls --depth 2 f', EXIT_USAGE, '--depth and --no-fold need --tree'),
    ('convert f nosuch/x.pth', EXIT_COMMIT, 'nosuch/x.pth: cannot open the directory of the output: No such file or directory'),
    ('convert --to=pytorch f x.pth', EXIT_RULES, "--to: must be burn, torch or none, not 'pytorch'"),
    ('edit f x.safetensors --add a.npy', EXIT_USAGE, "--add 'a.npy': expected KEY=VALUE"),
    ('edit f x.safetensors --add w=a.npy', EXIT_RULES, "f: tensor 'w' exists: it can be replaced, but not added"),
    ('edit f x.safetensors --add v=text', EXIT_DAMAGED, "f: 'text' is not a .npy file"),
    ('edit f x.safetensors --set x.shape=[3]', EXIT_RULES, "f: tensor 'x' has 16 bytes, which do not make F32 [3]"),
    ('edit f x.safetensors --remove nosuch', EXIT_RULES, "f: no key matches 'nosuch'"),
    ('edit f x.safetensors --rename w x', EXIT_RULES, "f: 'w' and 'x' would both be called 'x'"),
    ('sum --check text f', EXIT_DAMAGED, 'text: line 1: expected 64 hexadecimal digits'),
    ('patch show f', EXIT_FOREIGN, "f: is not a patch: its metadata has no 'weightfs.patch'"),
    ('show --slice 9 f x', EXIT_RULES, "f: --slice '9' of tensor 'x'"),
    ('convert f -', EXIT_USAGE, "cannot save to standard output: name a file ('./-' for one of that name)"),
    ('edit --format safetensors f - --remove w', EXIT_USAGE, 'cannot save to standard output'),
    ('patch make f s.safetensors -', EXIT_USAGE, '-: cannot save to standard output'),
    ('report f -o saved', EXIT_COMMIT, 'saved: exists and is not a regular file: use another name'),
    ('patch make --overwrite f s.safetensors saved', EXIT_COMMIT, 'saved: exists and is not a regular file: use another name'),
    ('convert --format pytorch f /dev/null', EXIT_COMMIT, '/dev/null: exists and is not a regular file: use another name'),
    ('help nosuch', EXIT_USAGE, "no verb 'nosuch'; see 'weightfs --help'"),
]


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp('mistakes')
    st.write(folder / 'f', {'w': ('F32', [4, 4], bytes(64)), 'x': ('F32', [4], bytes(16)), 'y': ('F32', [4], bytes(16))})
    (folder / 'm').mkdir()
    (folder / 'empty').write_bytes(b'')
    (folder / 'a.png').write_bytes(b'\x89PNG\r\n\x1a\n' + bytes(64))
    numpy.save(folder / 'a.npy', numpy.zeros(3))
    st.write(folder / 'none.safetensors', {})
    (folder / 'text').write_text('print(1)\n')
    (folder / 'there.safetensors').write_bytes(b'')
    (folder / 'cut.safetensors').write_bytes((folder / 'f').read_bytes()[:100])
    (folder / 'flax.msgpack').write_bytes(b'\x81\xa6params\x80')
    st.write(folder / 's.safetensors', {'w': ('F32', [4], bytes(16))})
    (folder / 'p.pth').write_bytes(pth.checkpoint(pth.dictionary(
        optimizer=pth.dictionary(lr=pth.number(1), groups=pth.dictionary(a=pth.dictionary(b=pth.number(2)))),
        epoch=pth.number(3), v=pth.tensor())))
    for name in ('saved/saved_model.pb', 'hub/models--a--b/snapshots/1/model.safetensors', 'zero/zero_to_fp32.py'):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b'')
    (folder / 'a.h5').write_bytes(b'\x89HDF\r\n\x1a\n' + bytes(8))
    (folder / 'a.onnx').write_bytes(b'\x08\x07\x12\x07pytorch\x1a\x052.3.0')
    numpy.savez(folder / 'a.npz', a=numpy.zeros(3))
    return folder


@pytest.mark.parametrize('command, code, text', ROWS, ids=[row[0] or 'nothing' for row in ROWS])
def test_each_mistake(place, command, code, text):
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    words = ['' if word == 'EMPTY' else word for word in command.split()]
    if (code in (EXIT_USAGE, EXIT_MOUNT) or 'm' in words) and not re.search(r'libfuse \d', weightfs('--version').stdout):
        pytest.skip('the program was built without the mount')
    done = weightfs(*words, code=code, cwd=place, **({'stdin': None, 'input': b'x'} if '-' in words else {}))
    assert done.error.replace(str(place), 'DIR').startswith(text)
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()} == before


@pytest.mark.parametrize('command', ['ls P', 'ls f P', 'cat f P', 'convert f P', 'convert f P/x.pth', 'sum --check P f', 'edit f x.pth --add a=P', 'patch show P',
                                     'patch apply P f x.safetensors', 'extract f * -d P/x', 'f P', 'f m -o output=P', 'f m -o output=P/x.pth', 'umount P',
                                     'commit P', 'status P', 'find P w', 'diff f P', 'ls --overlay P f'])
def test_a_path_is_whole_in_a_message(place, command):
    """Those below a cache of Hugging Face have 150 bytes and more; somebody wants to copy them."""
    path = str(place / 'p' / ('a' * 100) / ('b' * 100) / ('c' * 100))
    os.makedirs(os.path.dirname(os.path.dirname(path)), exist_ok=True)
    if not re.search(r'libfuse \d', weightfs('--version').stdout) and re.match('f |umount|commit|status', command):
        pytest.skip('the program was built without the mount')
    done = weightfs(*command.replace('P', path).split(), code=None, cwd=place)
    assert done.code != 0 and path in done.error and '...' not in done.error


@pytest.mark.parametrize('words, same_as', [(['help'], ['--help']), (['help', 'help'], ['--help']), (['help', 'ls'], ['ls', '--help']),
                                            (['f', 'm', '--help'], ['--help'])],
                         ids=' '.join)
def test_help_as_a_verb(words, same_as):
    assert weightfs(*words).stdout == weightfs(*same_as).stdout


def test_help_fits_a_terminal_of_80_columns():
    verbs = re.findall(r'^  ([a-z]+) ', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)
    pages = {verb: weightfs(verb, '--help').stdout for verb in verbs}
    assert len(verbs) > 10 and [(verb, line) for verb, page in pages.items() for line in page.splitlines() if len(line) > 80] == []


def test_letters_may_share_a_dash(place):
    assert weightfs('ls', '-lh', place / 'f').stdout == weightfs('ls', '-hl', place / 'f').stdout == weightfs('ls', '-l', '-h', place / 'f').stdout
    weightfs('convert', '-bS', '.old', place / 'f', place / 'new.pth')


def test_a_folder_that_cannot_be_written_is_what_the_message_names(place, folder):
    with disks.small(folder, 'tmpfs', 1) as disk:
        tool('mount', '-o', 'remount,ro', disk)
        error = weightfs('convert', place / 'f', disk / 'x.pth', code=EXIT_COMMIT).error
        assert error == '%s/x.pth: cannot create .x.pth.weightfs.tmp beside the output: Read-only file system' % disk
        error = weightfs('extract', place / 'f', '-d', disk / 'o', code=EXIT_COMMIT).error
        assert error == '%s/o: cannot create the directory: Read-only file system' % disk
    (folder / 'two').mkdir()
    with disks.small(folder / 'two', 'tmpfs', 1) as disk:
        disks.fill(disk)
        error = weightfs('convert', place / 'f', disk / 'x.pth', code=EXIT_COMMIT).error
        assert error.startswith('%s/x.pth: cannot reserve ' % disk) and error.endswith(': No space left on device')
