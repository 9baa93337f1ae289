# SPDX-License-Identifier: MIT
"""Random edits of a mount, and the same calls in a directory of the host; both must show the same names, bytes and links. What a commit writes is
read without our program. Every choice follows from the seed:

    PYTHONPATH=tests WFS_BUILD=build python3 -m wfs_testlib.random_edits FORMAT SEED STEPS [OPTION...]
"""
import errno
import json
import mmap
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from wfs_testlib import burnpack, checkpoints, dcp_read, look, mpk, mount as mounts, paths, program, pth, pth_read, sets, st
from wfs_testlib.edit_kinds import exchange_names

SIZES = {'F32': 4, 'F16': 2, 'BF16': 2, 'I32': 4, 'U8': 1, 'F64': 8, 'I64': 8, 'BOOL': 1}
NPY = {'<f4': 'F32', '<i4': 'I32', '|u1': 'U8', '<f2': 'F16', '<f8': 'F64', '<i8': 'I64', '|b1': 'BOOL'}
ENDINGS = {'safetensors': '.safetensors', 'pth': '.pth', 'bpk': '.bpk', 'mpk': '.mpk', 'dcp': '', 'set': ''}
OPTIONS = ['rw', 'npy', 'flat', 'remap', 'transpose', 'backup']
BACKUP = [re.compile(pattern) for pattern in (r'(.+)\.~\d+~', r'(.+)~', r'(.+)\.(?:bak|orig|rej|swp)', r'#(.+)#')]
SHAPES = [[], [1], [3], [5, 7], [16, 16], [2, 3, 4], [0, 4], [1000], [64, 33], [4097]]
N_HEADER = 128  # bytes of a .npy file before its data


def n_bytes(dtype, shape):
    n = SIZES[dtype]
    for dim in shape:
        n *= dim
    return n


def npy_file(descr, shape, data):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (descr, ''.join('%d, ' % n for n in shape))
    return b'\x93NUMPY\x01\x00' + (118).to_bytes(2, 'little') + text.ljust(117).encode() + b'\n' + data


def npy_parts(content):
    """(descr, shape, data) of a .npy file; (None, None, None): it is not one."""
    n = int.from_bytes(content[8:10], 'little')
    found = re.fullmatch(rb"\{'descr': '(.+?)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), *\}\s*", content[10:10 + n])
    if found is None:
        return None, None, None
    return found[1].decode(), [int(one) for one in found[2].replace(b' ', b'').split(b',') if one], content[10 + n:]


def read(path, form):
    """({key: (dtype, shape, bytes)}, values) by readers of our own."""
    if form == 'mpk':
        return mpk.read(path), {}
    if form == 'set':
        (index,) = [one for one in path.iterdir() if one.name.endswith('.index.json')]
        places, found = json.loads(index.read_text())['weight_map'], {}
        for name in sorted(set(places.values())):
            tensors = st.read(path / name).tensors
            assert set(tensors) == {key for key, place in places.items() if place == name}
            found.update(tensors)
        return found, {}
    if form in ('pth', 'dcp'):
        state = pth_read.load(path) if form == 'pth' else dcp_read.load(path)
        values = {key: value for key, value in state.items() if key in ('epoch', 'config')}
        return {key: (one.dtype, list(one.shape), one.data) for key, one in pth_read.tensors(state).items()}, values
    return {key: (dtype, list(shape), data) for key, (dtype, shape, data) in checkpoints.read(path).items()}, {}


def nested(tensors):
    root = {}
    for key, value in tensors.items():
        at = root
        *above, last = key.split('.')
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    return root


class Problem(AssertionError):
    pass


class World:
    """A source, its mount, and the shadow: a directory of the host with the same files."""

    def __init__(self, top, form, seed, options=()):
        self.form, self.options, self.top = form, set(options), pathlib.Path(top)
        self.random = random.Random('%s %s %s' % (form, seed, sorted(options)))
        self.history, self.n_steps, self.counts = [], 0, {}
        self.mnt, self.shadow = self.top / 'mnt', self.top / 'shadow'
        self.suffix = '.npy' if 'npy' in self.options else ''
        self.is_flat, self.is_rw = 'flat' in self.options, 'rw' in self.options and form != 'dcp'
        self.dtypes = [dtype for dtype in SIZES if dtype in NPY.values() or not self.suffix]
        if form in ('bpk', 'mpk', 'dcp'):
            self.dtypes.remove('BOOL')
        self.mnt.mkdir()
        self.make_source()
        self.mount()
        self.adopt_source()

    def demand(self, is_so, *what):
        if not is_so:
            raise Problem('%s, step %d: %s' % (self.form, self.n_steps, ' '.join(map(str, what))[:2000]))

    # ---- the source ----

    def make_source(self):
        keys = ['k', 'temperature', 'long.name.of.a.tensor.w', *('a.%s.%s' % (x, y) for x in 'pqr' for y in ('w', 'b', 'norm')),
                *('blk.%s.%s.w' % (x, y) for x in 'uv' for y in 'xyz'), *('d%d.t%d' % (i, j) for i in range(3) for j in range(4))]
        if self.form in ('safetensors', 'set', 'bpk'):
            keys += ['sp ace.x', 'per%cent.w', 'ünï.w', 'a.p', 'co"mma,.w', 'sl/ash.w']
        tensors = {}
        for key in keys:
            dtype, shape = self.random.choice(self.dtypes), self.random.choice(SHAPES[3:5] if key.startswith('blk') else SHAPES)
            data = self.random.randbytes(n_bytes(dtype, shape))
            tensors[key] = dtype, shape, bytes(byte & 1 for byte in data) if dtype == 'BOOL' else data
        self.source = self.top / ('source' + ENDINGS[self.form])
        values = {'epoch': pth.number(3), 'config': pth.dictionary(lr=pth.number(1), name=pth.text('x'))}
        if self.form == 'set':
            names = list(tensors)
            sets.write(self.source, [{key: tensors[key] for key in names[i::3]} for i in range(3)])
        elif self.form == 'mpk':
            item = nested({key: mpk.param(i + 1, mpk.tensor(data, shape, dtype)) for i, (key, (dtype, shape, data)) in enumerate(tensors.items())})
            self.source.write_bytes(mpk.pack(mpk.record(item)))
        elif self.form == 'dcp':
            self.run('convert', checkpoints.write(self.top / 'seed.pth', tensors, **values), self.source, '--format=dcp')
        else:
            checkpoints.write(self.source, tensors, **(values if self.form == 'pth' else {}))
        self.out = self.source if self.is_rw else self.top / ('out' + ENDINGS[self.form])

    def shown(self, tensors):
        """As the view shows them."""
        found = {}
        for key, (dtype, shape, data) in tensors.items():
            if 'transpose' in self.options and key.startswith('blk.') and len(shape) == 2:
                n, (rows, columns) = SIZES[dtype], shape
                data = b''.join(data[n * (i * columns + j):][:n] for j in range(columns) for i in range(rows))
                shape = [columns, rows]
            found[re.sub(r'^a\.', 'zz.', key) if 'remap' in self.options else key] = dtype, list(shape), data
        return found

    def views(self):
        return ['--transpose=^blk[.]'] * ('transpose' in self.options) + [r'--remap=s/^a\./zz./'] * ('remap' in self.options)

    def run(self, *arguments, code=0):
        done = subprocess.run([*program.COMMAND, *map(os.fspath, arguments)], stdin=subprocess.DEVNULL, capture_output=True, timeout=program.PATIENCE,
                              check=False)
        text = done.stderr.decode(errors='replace')
        self.demand(code is None or done.returncode == code, 'exit code', done.returncode, 'of', arguments, text, done.stdout[-500:])
        return done.returncode, done.stdout.decode(errors='replace'), text

    def keep_source(self):
        """A copy of what was mounted, which patches are applied to."""
        self.kept = self.top / ('kept' + ENDINGS[self.form])
        self.remove(self.kept)
        (shutil.copytree if self.source.is_dir() else shutil.copy)(self.source, self.kept)

    @staticmethod
    def remove(path):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()

    def mount(self):
        is_folder = self.form in ('set', 'dcp')
        options = ['rw'] if self.is_rw else ['output=%s%s' % (self.out, '/' * is_folder), 'overwrite']
        options += ['format=dcp'] * (self.form == 'dcp') + ['layout=flat'] * self.is_flat + ['files=npy'] * bool(self.suffix)
        options += ['backup'] * ('backup' in self.options) + [view.removeprefix('--').replace('\\', '\\\\') for view in self.views()]
        self.run(self.source, self.mnt, '-o', ','.join(options))
        self.has_committed = False

    # ---- the shadow ----

    def adopt_source(self):
        """The shadow becomes the source, as our reader and the description of names have it. Empty directories come back after a kill."""
        self.keep_source()
        tensors, _ = read(self.source, self.form)
        tensors = self.shown(tensors)
        places = paths.plain_paths(tensors, 'flat' if self.is_flat else 'nested', self.suffix)
        self.loaded = {places[key]: (key, *tensor) for key, tensor in tensors.items()}
        shutil.rmtree(self.shadow, ignore_errors=True)
        self.shadow.mkdir()
        self.known = {}
        first = {}
        for name, (_, dtype, shape, data) in self.loaded.items():
            path = self.shadow / name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = (self.mnt / name).read_bytes()
            if self.suffix:
                self.demand(npy_parts(content)[1:] == (shape, data), 'content of', name)
            tie = first.setdefault((self.mnt / name).stat().st_ino, path) if self.form == 'pth' else path
            if tie != path:
                os.link(tie, path)
                continue
            path.write_bytes(content if self.suffix else data)
            self.known[path.stat().st_ino] = [dtype, shape]
        for name in set(look.files(self.mnt)) - set(self.loaded):
            self.demand(self.is_value(name), 'a file that the source lacks', name)
            (self.shadow / name).parent.mkdir(parents=True, exist_ok=True)
            (self.shadow / name).write_bytes((self.mnt / name).read_bytes())
        self.pristine = {name: (self.shadow / name).read_bytes() for name in look.files(self.shadow)}
        self.folders = self.walk(self.shadow)[1]
        for name in self.walk(self.mnt)[1]:
            (self.shadow / name).mkdir(parents=True, exist_ok=True)
        self.has_moved_folders = False
        self.compare()

    @staticmethod
    def walk(root):
        """({file: inode}, {folder: inode})"""
        files, folders = {}, {}
        for above, names, others in os.walk(root):
            for name in names:
                path = os.path.join(above, name)
                folders[os.path.relpath(path, root)] = os.stat(path).st_ino
            for name in others:
                path = os.path.join(above, name)
                files[os.path.relpath(path, root)] = os.stat(path).st_ino
        return files, folders

    @staticmethod
    def ties(files):
        groups = {}
        for name, inode in files.items():
            groups.setdefault(inode, set()).add(name)
        return sorted(sorted(group) for group in groups.values())

    def attributes(self, name):
        found = []
        for attribute in ('dtype', 'shape'):
            try:
                text = look.attribute(self.mnt / name, attribute)
                found.append(text if attribute == 'dtype' else json.loads(text))
            except OSError as error:
                self.demand(error.errno == errno.ENODATA, name, attribute, error)
                found.append(None)
        return found

    def is_scratch(self, name, files):
        if any(part.startswith('.') for part in name.split('/')):
            return True
        above, slash, last = name.rpartition('/')
        return name not in self.loaded and self.is_backup(above + slash, last, files)

    def is_backup(self, above, name, files):
        """Of a file beside it, or of a backup of one."""
        first = next((found[1] for found in (pattern.fullmatch(name) for pattern in BACKUP) if found), None)
        return first is not None and (first.partition('.')[0] == '%self' or above + first in files or self.is_backup(above, first, files))

    def is_value(self, name):
        return name.endswith('.json') and self.form in ('pth', 'dcp', 'mpk')

    def is_tensor(self, name, files):
        return not self.is_value(name) and not self.is_scratch(name, files)

    def compare(self):
        files, folders = self.walk(self.shadow)
        shown, shown_folders = self.walk(self.mnt)
        self.demand(set(files) == set(shown), 'missing', sorted(set(files) - set(shown)), 'too many', sorted(set(shown) - set(files)))
        self.demand(set(folders) == set(shown_folders), 'folders', sorted(set(folders) ^ set(shown_folders)))
        for name in files:
            self.demand((self.shadow / name).read_bytes() == (self.mnt / name).read_bytes(), 'content of', name)
        self.demand(self.ties(files) == self.ties(shown), 'links', self.ties(files), self.ties(shown))
        for name, inode in files.items():
            known = self.known.get(inode)
            if known is not None and not self.suffix and self.is_tensor(name, files):
                self.demand(self.attributes(name) == known, 'dtype and shape of', name, self.attributes(name), 'not', known)

    def resync(self):
        """The shadow becomes what the mount shows, which was judged by the caller."""
        files, folders = self.walk(self.mnt)
        shutil.rmtree(self.shadow)
        self.shadow.mkdir()
        for name in folders:
            (self.shadow / name).mkdir(parents=True, exist_ok=True)
        first, self.known = {}, {}
        for name, inode in files.items():
            path = self.shadow / name
            if inode in first:
                os.link(first[inode], path)
                continue
            first[inode] = path
            path.write_bytes((self.mnt / name).read_bytes())
            if self.is_tensor(name, files) and not self.suffix and name in self.loaded and path.read_bytes() == self.loaded[name][3]:
                shown = self.attributes(name)
                self.known[path.stat().st_ino] = shown if None not in shown else None

    # ---- one call in both ----

    def both(self, what, call):
        self.history.append(what)
        outcomes = []
        for root in (self.shadow, self.mnt):
            try:
                outcomes.append(('done', call(root)))
            except OSError as error:
                outcomes.append((errno.errorcode[error.errno], None))
        self.demand(outcomes[0] == outcomes[1], what, 'host', outcomes[0], 'mount', outcomes[1])
        return outcomes[0][0] == 'done'

    def pick(self, files):
        return self.random.choice(sorted(name for name in files if not self.is_value(name)))

    def new_name(self, folders):
        above = '' if self.is_flat else self.random.choice([*sorted(folders), ''])
        name = self.random.choice(['n%d' % self.random.randrange(40)] * 9 + ['.scratch%d' % self.random.randrange(5)])
        if self.form in ('safetensors', 'set', 'bpk') and self.random.random() < .1:
            name = self.random.choice(['a b', 'ü', 'x%25y', 'UP', "q'uote"])
        return os.path.join(above, name + self.suffix)

    def new_content(self):
        if not self.suffix:
            return self.random.randbytes(self.random.choice([0, 4, 16, 400, 5000]))
        descr = self.random.choice([one for one, dtype in NPY.items() if dtype in self.dtypes and dtype != 'BOOL'])
        n = self.random.choice([1, 5, 100])
        return npy_file(descr, [n], self.random.randbytes(n * SIZES[NPY[descr]]))

    def place_in(self, name):
        """Somewhere in the data of a file, and bytes that fit there; None: it has none."""
        n, first = (self.shadow / name).stat().st_size, N_HEADER if self.suffix else 0
        if n <= first:
            return None
        offset = self.random.randrange(first, n)
        return offset, self.random.randbytes(min(n - offset, self.random.choice([1, 10, 5000])))

    def step(self):
        self.n_steps += 1
        files, folders = self.walk(self.shadow)
        inodes = set(files.values())
        self.known = {inode: known for inode, known in self.known.items() if inode in inodes}
        verbs = dict(RAW if not self.suffix else {})
        verbs.update(ALL)
        if not self.is_flat:
            verbs.update(DEEP)
        (verb,) = self.random.choices(list(verbs), list(verbs.values()))
        self.counts[verb] = self.counts.get(verb, 0) + 1
        if any(not self.is_value(name) for name in files) or verb in ('do_discard_all', 'do_create'):
            getattr(self, verb)(files, folders)

    # ---- content ----

    def do_write(self, files, _folders):
        name = self.pick(files)
        place = self.place_in(name)

        def call(root):
            fd = os.open(root / name, os.O_RDWR)
            try:
                done = os.pwrite(fd, place[1], place[0])
                if place[0] % 3 == 0:
                    os.fsync(fd)
                return done
            finally:
                os.close(fd)
        if place is not None:
            self.both('write %s' % name, call)

    def do_map(self, files, _folders):
        name = self.pick(files)
        place = self.place_in(name)

        def call(root):
            with open(root / name, 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
                mapped[place[0]:place[0] + len(place[1])] = place[1]
                mapped.flush()
        if place is not None:
            self.both('map %s' % name, call)

    def do_append(self, files, _folders):
        name, data = self.pick(files), self.random.randbytes(self.random.choice([1, 4, 100]))

        def call(root):
            with open(root / name, 'ab') as file:
                file.write(data)
        self.both('append %s %d' % (name, len(data)), call)

    def do_truncate(self, files, _folders):
        name = self.pick(files)
        n = self.random.choice([0, 1, 7, (self.shadow / name).stat().st_size, 5000])
        self.both('truncate %s %d' % (name, n), lambda root: os.truncate(root / name, n))

    def do_rewrite(self, files, _folders):
        name = self.pick(files)
        data = self.random.randbytes((self.shadow / name).stat().st_size)
        self.both('rewrite %s' % name, lambda root: (root / name).write_bytes(data))

    def do_create(self, _files, folders):
        name, data = self.new_name(folders), self.new_content()

        def call(root):
            with open(root / name, 'xb') as file:
                file.write(data)
        if self.both('create %s %d' % (name, len(data)), call) and not self.suffix and self.random.random() < .8:
            self.describe(name, len(data))

    def describe(self, name, n):
        dtype = self.random.choice([one for one in self.dtypes if n % SIZES[one] == 0 and one != 'BOOL'])
        n //= SIZES[dtype]
        self.set_attributes(name, dtype, self.random.choice([[n], [1, n], [n, 1]]))

    def set_attributes(self, name, dtype, shape):
        self.history.append('set %s %s %s' % (name, dtype, shape))
        look.set_attribute(self.mnt / name, 'dtype', dtype)
        look.set_attribute(self.mnt / name, 'shape', json.dumps(shape))
        self.known[(self.shadow / name).stat().st_ino] = [dtype, shape]

    def do_set(self, files, _folders):
        name = self.pick(files)
        self.describe(name, (self.shadow / name).stat().st_size)

    def do_open_and_unlink(self, files, _folders):
        """An open file keeps its content."""
        name = self.pick(files)
        if len(files) > 20:
            with open(self.shadow / name, 'rb') as one, open(self.mnt / name, 'rb') as other:
                self.both('unlink open %s' % name, lambda root: os.unlink(root / name))
                self.demand(one.read() == other.read(), 'content of the open file', name)

    # ---- names ----

    def do_replace(self, files, _folders):
        name = self.pick(files)
        data = self.new_content() if self.suffix else self.random.randbytes(self.random.choice([(self.shadow / name).stat().st_size, 12]))
        beside = os.path.join(os.path.dirname(name), '.tmp~1')
        known = self.known.get(files[name])

        def call(root):
            (root / beside).write_bytes(data)
            os.rename(root / beside, root / name)
        if self.both('replace %s %d' % (name, len(data)), call):
            self.known[(self.shadow / name).stat().st_ino] = known

    def do_rename(self, files, folders):
        name, to = self.pick(files), self.pick(files) if self.random.random() < .35 else self.new_name(folders)
        self.both('rename %s %s' % (name, to), lambda root: os.rename(root / name, root / to))

    def do_rename_folder(self, _files, folders):
        if not folders:
            return
        name, above = self.random.choice(sorted(folders)), self.random.choice([*sorted(folders), ''])
        to = os.path.join(above, self.random.choice(['m0', 'm1', 'm2', os.path.basename(name)]))
        self.has_moved_folders |= self.both('rename folder %s %s' % (name, to), lambda root: os.rename(root / name, root / to))

    def do_exchange(self, files, folders):
        choices = sorted(name for name in files if not self.is_value(name)) + sorted(folders)
        if len(choices) < 2:
            return
        one, other = self.random.sample(choices, 2)
        # No directory is called %self, or as a file of the host, or as a backup: whether one of .pth is one dict or several depends on what it was.
        if (one in folders) != (other in folders) and any(
                os.path.basename(name).startswith('%self') or '.~' in name or name.endswith(('~', '.bak', '.orig')) for name in (one, other)):
            return
        done = self.both('exchange %s %s' % (one, other), lambda root: exchange_names(root / one, root / other))
        self.has_moved_folders |= done and (one in folders or other in folders)

    def do_unlink(self, files, _folders):
        name = self.pick(files)
        self.both('unlink %s' % name, lambda root: os.unlink(root / name))

    def do_remove_tree(self, files, folders):
        if folders and len(files) > 15:
            name = self.random.choice(sorted(folders))
            self.has_moved_folders |= self.both('rm -r %s' % name, lambda root: shutil.rmtree(root / name))

    def do_mkdir(self, _files, folders):
        name = self.new_name(folders)
        self.both('mkdir %s' % name, lambda root: os.mkdir(root / name))

    def do_rmdir(self, _files, folders):
        if folders:
            name = self.random.choice(sorted(folders))
            self.has_moved_folders |= self.both('rmdir %s' % name, lambda root: os.rmdir(root / name))

    def do_link(self, files, folders):
        name, to = self.pick(files), self.new_name(folders)
        self.both('link %s %s' % (name, to), lambda root: os.link(root / name, root / to))

    def do_copy(self, files, folders):
        """A copy of the whole file carries dtype and shape."""
        name, to = self.pick(files), self.pick(files) if self.random.random() < .3 else self.new_name(folders)
        option = self.random.choice([[], ['-a', '--no-preserve=ownership'], ['--remove-destination']])
        if to in folders or files[name] == files.get(to):
            return
        known = None if self.suffix else self.attributes(name)
        self.history.append('cp %s %s %s' % (' '.join(option), name, to))
        codes = [subprocess.run(['cp', *option, root / name, root / to], stderr=subprocess.DEVNULL, check=False).returncode
                 for root in (self.shadow, self.mnt)]
        self.demand(codes[0] == codes[1], 'cp', name, to, codes)
        if codes[0] == 0:
            has_bytes = not self.suffix and None not in known and (self.shadow / name).stat().st_size > 0
            self.known[(self.shadow / to).stat().st_ino] = known if has_bytes else None

    def do_copy_folder(self, files, folders):
        name, to = self.random.choice([*sorted(folders), 'none']), self.new_name(folders)
        if name in folders and to not in files and to not in folders and not (to + '/').startswith(name + '/') and len(files) < 150:
            self.history.append('cp -r %s %s' % (name, to))
            codes = [subprocess.run(['cp', '-r', root / name, root / to], stderr=subprocess.DEVNULL, check=False).returncode
                     for root in (self.shadow, self.mnt)]
            self.demand(codes[0] == codes[1], 'cp -r', name, to, codes)

    def do_back_up(self, files, _folders):
        name = self.pick(files) + self.random.choice(['~', '.bak', '.orig', '.~1~'])
        if name not in files and not os.path.basename(name).startswith('.'):
            self.both('back up %s' % name, lambda root: (root / name).write_bytes(b'copy'))

    def do_mistake(self, files, folders):
        name, folder = self.pick(files), self.random.choice(sorted(folders) or ['none'])
        which, call = self.random.choice(list(enumerate([
            lambda root: os.rename(root / name, root / folder), lambda root: os.rename(root / folder, root / name), lambda root: os.unlink(root / folder),
            lambda root: os.rename(root / folder, root / folder / 'x'), lambda root: os.rmdir(root / name), lambda root: os.rmdir(root / 'nosuch'),
            lambda root: os.mkdir(root / folder), lambda root: os.link(root / name, root / folder), lambda root: os.open(root / name / 'x', os.O_RDONLY),
            lambda root: os.rename(root / 'nosuch', root / name), lambda root: os.truncate(root / folder, 3),
            lambda root: os.open(root / ('x' * 256), os.O_CREAT | os.O_RDWR)])))
        if folder in folders or which not in (6,):
            self.both('mistake %d %s %s' % (which, name, folder), call)

    def do_value(self, files, _folders):
        names = sorted(name for name in files if self.is_value(name))
        if names and self.form in ('pth', 'dcp'):
            name, value = self.random.choice(names), self.random.choice([1, 'x', None, [1, 2], 2.5, {'a': 1, 'b': [True, None]}])
            self.both('value %s %r' % (name, value), lambda root: (root / name).write_text(json.dumps(value) + '\n'))

    def do_compare(self, _files, _folders):
        self.compare()

    # ---- committing ----

    def key_of(self, name):
        parts = name.removesuffix(self.suffix).split('/')
        if parts[-1] == '%self':
            parts.pop()
        return '.'.join('' if part == '%' else re.sub('%([0-9A-F]{2})', lambda found: chr(int(found[1], 16)), part) for part in parts)

    def expected(self, files):
        """What a commit must write: ({key: (dtype, shape, bytes)}, {name: why it must fail}, names of which dtype or shape is not known)."""
        found, wrong, unknown = {}, {}, set()
        for name in files:
            if not self.is_tensor(name, files):
                continue
            content, key = (self.shadow / name).read_bytes(), self.key_of(name)
            if key in found:
                wrong[name] = 'key'
            if self.suffix:
                descr, shape, data = npy_parts(content)
                found[key] = NPY.get(descr, descr), shape, data
                if descr is None:
                    wrong[name] = 'array'
                continue
            dtype, shape = self.attributes(name)
            found[key] = dtype, shape, content
            if dtype is None or shape is None:
                unknown.add(name)
            elif n_bytes(dtype, shape) != len(content):
                wrong[name] = '%d bytes, %s %s' % (len(content), dtype, shape)
        if self.form in ('mpk', 'pth', 'dcp'):  # dicts in dicts: a key is not a prefix of another one
            wrong.update({key: 'prefix' for key in found for other in found if other.startswith(key + '.')})
        return found, wrong, unknown

    def mend(self, files):
        """Describes what cannot be committed, and removes what cannot be named."""
        _, wrong, unknown = self.expected(files)
        for name in [*wrong, *unknown]:
            if name not in files or wrong.get(name) in ('key', 'array'):
                for one in [one for one in files if self.is_tensor(one, files) and (one == name or self.key_of(one) == name)]:
                    if (self.shadow / one).exists():
                        self.both('unlink %s' % one, lambda root, one=one: os.unlink(root / one))
            elif not self.suffix:
                self.set_attributes(name, 'U8', [(self.shadow / name).stat().st_size])

    def check_output(self, wanted, path=None):
        found, values = read(path or self.out, self.form)
        self.demand(set(found) == set(wanted), 'the output lacks', sorted(set(wanted) - set(found)), 'has too many', sorted(set(found) - set(wanted)))
        for key, (dtype, shape, data) in wanted.items():
            is_same = found[key][2] == data and dtype in (None, found[key][0]) and shape in (None, found[key][1])
            self.demand(is_same, 'the output has', key, found[key][:2], 'not', dtype, shape, 'bytes equal', found[key][2] == data)
        if path is None and self.form == 'pth':
            shown = {name.removesuffix('.json'): json.loads((self.shadow / name).read_text()) for name in ('epoch.json', 'config.json')}
            self.demand(values == shown, 'values', values, shown)

    def identity(self):
        if self.out.is_dir():
            return {one.name: one.stat().st_ino for one in self.out.iterdir() if not one.name.startswith('.')}
        return self.out.stat().st_ino if self.out.exists() else None

    def do_commit(self, files, _folders, is_good=False):
        if is_good or self.random.random() < .8:
            self.mend(files)
            files = self.walk(self.shadow)[0]
        if not any(self.is_tensor(name, files) for name in files):
            return
        wanted, wrong, unknown = self.expected(files)
        before, patch = self.identity(), self.top / 'patch.safetensors'
        has_pending = json.loads((self.mnt / '.weightfs/status.json').read_text())['edits'] > 0
        tries = self.random.random() < .3 and self.run('commit', '--dry-run', self.mnt, code=None)[0]
        self.demand(self.identity() == before, 'a trial changed the output')
        has_patch = self.random.random() < .4 and not wrong and not unknown
        if has_patch:
            self.run('patch', 'make', '--overwrite', self.mnt, patch)
        made = self.mnt / '.weightfs/out' / ('model' + ENDINGS[self.form])
        content = made.read_bytes() if ENDINGS[self.form] and not wrong and not unknown and self.random.random() < .4 else None
        self.history.append('commit')
        code, _, text = self.run('commit', self.mnt, code=None)
        self.demand(tries is False or (tries == 0) == (code == 0), 'the trial ends with', tries, 'the commit with', code, text)
        if code != 0:
            self.demand(wrong or unknown, 'the commit fails:', text)
            self.demand(self.identity() == before, 'a failed commit changed the output')
            return
        if not has_pending and before and self.identity() == before:
            return  # without edits, only what is missing, or not of this mount, is written
        self.demand(not wrong, 'the commit does not fail:', wrong)
        self.has_committed = True
        self.check_output(wanted)
        self.demand(content is None or content == self.out.read_bytes(), 'out/ differs from the commit')
        if has_patch:
            self.apply(patch)

    def apply(self, patch):
        """To the source, it gives the same output, byte for byte in one file."""
        to = self.top / ('applied' + ENDINGS[self.form])
        self.run('patch', 'apply', *self.views(), *['--format=dcp'] * (self.form == 'dcp'), patch, self.kept, '%s%s' % (to, '/' * (not ENDINGS[self.form])))
        if to.is_dir():
            self.demand(read(to, self.form) == read(self.out, self.form), 'the applied patch differs from the commit')
        else:
            self.demand(to.read_bytes() == self.out.read_bytes(), 'the applied patch differs from the commit in its bytes',
                        read(to, self.form) == read(self.out, self.form))
        self.remove(to)

    def do_edit_verb(self, _files, _folders):
        """The verb edit, of what was committed last."""
        if not self.has_committed or self.form in ('set', 'dcp'):
            return
        found, _ = read(self.out, self.form)
        to, keys = self.top / ('edited' + ENDINGS[self.form]), sorted(key for key in found if not set(key) & set('*?[]\\=,'))
        if len(keys) < 3:
            return
        removed, replaced = self.random.sample(keys, 2)
        array = self.top / 'array.npy'
        array.write_bytes(npy_file('<f4', [2], b'12345678'))
        self.history.append('edit %s %s' % (removed, replaced))
        self.run('edit', '--remove=' + removed, '--replace=%s=%s' % (replaced, array), self.out, to)
        self.check_output({**{key: one for key, one in found.items() if key != removed}, replaced: ('F32', [2], b'12345678')}, to)
        self.remove(to)

    def do_edits(self, files, _folders):
        rows = json.loads(self.run('status', '--edits', '--json', self.mnt)[1])['changes']
        self.demand(json.loads((self.mnt / '.weightfs/edits.json').read_text()) == rows, 'edits.json differs from status --edits')
        names = {name for name in files if not self.is_scratch(name, files)}
        is_same = names == set(self.pristine) and all((self.shadow / name).read_bytes() == self.pristine[name] for name in names)
        self.demand(rows or is_same, 'no edits, but the tree differs')
        moved = {row['from'] for row in rows if row['change'] == 'renamed'}
        named = [row['path'] for row in rows if row['change'] != 'removed']
        gone = [*moved, *(row['path'] for row in rows if row['change'] == 'removed')]
        for is_new, ways in ((names - set(self.pristine), named), (set(self.pristine) - names, gone)):
            for name in is_new:
                self.demand(any((name + '/').startswith(way + '/') for way in ways), 'the edits do not name', name, rows)
        for row in rows:
            self.demand(row['change'] == 'removed' or os.path.lexists(self.mnt / row['path']) or row['path'].startswith('.weightfs'), 'no such file', row)
            if row['change'] == 'removed' and not self.has_moved_folders:
                self.demand(row['path'] in self.pristine and row['path'] not in moved, 'not of the source', row)

    # ---- taking back ----

    def state(self):
        files, folders = self.walk(self.mnt)
        return {name: ((self.mnt / name).read_bytes(), None if self.suffix or not self.is_tensor(name, files) else tuple(map(str, self.attributes(name))))
                for name in files}, set(folders)

    def take_back(self, *names):
        return self.run('discard', *['--committed'] * self.has_committed, self.mnt, *names, code=None)

    def do_discard(self, files, folders):
        choices = sorted({*files, *folders, *self.loaded, *self.folders})
        rows = json.loads(self.run('status', '--edits', '--json', self.mnt)[1])['changes']
        choices = [row['path'] for row in rows] * 3 + choices
        names = [self.random.choice(choices) for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
        self.history.append('discard ' + ' '.join(names))
        before, (ties, _) = self.state(), self.walk(self.mnt)
        code, _, text = self.take_back(*names)
        after = self.state()
        if code != 0:
            self.demand(before == after, 'a refused discard changes the tree:', text)
            return
        contents = set(self.pristine.values())
        for name, (content, shown) in after[0].items():
            was = before[0].get(name)
            self.demand((was is not None and was[0] == content) or content in contents, 'discard gives', name, 'another content')
            self.demand(was is not None or name in self.pristine or self.has_moved_folders, 'discard makes', name)
            if name in names and name in self.loaded and not self.has_moved_folders:
                self.demand(content == self.pristine[name], 'discard leaves the content of', name)
                self.demand(self.suffix or shown == tuple(map(str, self.loaded[name][1:3])), 'discard leaves dtype and shape of', name, shown)
        for name, was in before[0].items():
            is_single = list(ties.values()).count(ties[name]) == 1
            if is_single and name in self.pristine and was[0] == self.pristine[name] and not self.has_moved_folders and after[0].get(name) != was:
                self.demand(after[0].get(name, [None])[0] == was[0], 'discard takes away', name)
            if is_single and name not in self.pristine and not self.has_moved_folders and was[0] not in contents:
                is_named = any((name + '/').startswith(one + '/') for one in names)
                self.demand(is_named or name in after[0] or self.is_heir(name, before[0]), 'discard takes away the new file', name)
        self.resync()

    def is_heir(self, name, before):
        """The file of a name that the source lacks may be a file of the source, which comes back to its own name."""
        return any(one not in before for one in self.pristine) or name in before

    def do_discard_all(self, _files, _folders):
        self.history.append('discard all')
        code, _, text = self.take_back()
        self.demand(code == 0, text)
        self.demand(json.loads(self.run('status', '--edits', '--json', self.mnt)[1])['changes'] == [], 'edits are left')
        shown, folders = self.state()
        self.demand({name: content for name, (content, _) in shown.items()} == self.pristine, 'discard all: not the source')
        self.demand(folders == set(self.folders), 'discard all: folders', sorted(folders ^ set(self.folders)))
        self.resync()
        for name, (_, dtype, shape, _) in self.loaded.items():
            self.known[(self.shadow / name).stat().st_ino] = [dtype, shape]
        self.has_moved_folders = False
        self.compare()

    # ---- the end of a mount ----

    def driver(self):
        one = mounts.Mount.__new__(mounts.Mount)
        one.path = self.mnt
        return one.control(2).pid

    def wait_for_end(self, supervisor):
        mounts.wait_for(lambda: not mounts.is_alive(supervisor) and not mounts.is_mounted(self.mnt), 'the end of the driver')

    def do_unmount(self, files, folders):
        self.do_commit(files, folders, is_good=True)
        files, _ = self.walk(self.shadow)
        wanted, wrong, unknown = self.expected(files)
        if wrong or unknown or not wanted or not self.has_committed:
            return
        self.history.append('umount')
        supervisor = self.driver()
        if self.random.random() < .5:
            self.run('umount', self.mnt)
        else:
            program.unmount(self.mnt)
            self.wait_for_end(supervisor)
        self.check_output(wanted)
        self.demand(not list(self.top.glob('.*.weightfs')), 'left behind:', list(self.top.glob('.*.weightfs')))
        if not self.is_rw and not self.views() and self.random.random() < .6:
            self.remove(self.source)
            shutil.move(self.out, self.source)
        self.start_again()

    def start_again(self):
        """Mounts what is there now, of which nothing is pending."""
        if self.is_rw:  # shown as it is now, it would be changed twice
            self.options -= {'remap', 'transpose'}
        self.mount()
        self.adopt_source()

    def do_kill(self, files, _folders):
        supervisor = self.driver()
        workers = mounts.children(supervisor)
        wanted, wrong, unknown = self.expected(files)
        has_pending = json.loads((self.mnt / '.weightfs/status.json').read_text())['edits'] > 0
        for pid in self.random.choice([workers, [*workers, supervisor]]):
            os.kill(pid, signal.SIGKILL)
        mounts.wait_for(lambda: not any(map(mounts.is_alive, [supervisor, *workers])), 'the end of the driver')
        mounts.force_unmount(self.mnt)
        self.history.append('kill')
        if not has_pending:
            if self.run('recover', self.source if self.is_rw else self.out, code=None)[0] == 0:
                self.start_again()
            else:  # a directory was made since: all edits that were committed are shown
                has_committed = self.has_committed
                self.mount()
                self.has_committed = has_committed
                self.compare()
        elif not wrong and not unknown and wanted and self.random.random() < .3:
            self.history.append('recover --publish')
            options = [option for option in ('overwrite' * (not self.is_rw), 'format=dcp' * (self.form == 'dcp'), 'layout=flat' * self.is_flat, 'files=npy' * bool(self.suffix)) if option]
            options += [view.removeprefix('--').replace('\\', '\\\\') for view in self.views()]
            self.run('recover', self.out, '--publish', '--source=%s' % self.source, '--options=%s' % ','.join(options))
            self.check_output(wanted)
            self.start_again()
        else:
            has_committed = self.has_committed
            self.mount()
            self.has_committed = has_committed
            self.compare()

    def close(self):
        if mounts.is_mounted(self.mnt):
            supervisor = self.driver()
            self.run('umount', '--discard', self.mnt, code=None)
            self.wait_for_end(supervisor)


# How often each is chosen. With files=npy, contents have to be whole arrays.
ALL = {'do_write': 12, 'do_map': 2, 'do_create': 8, 'do_replace': 6, 'do_rename': 12, 'do_unlink': 5, 'do_copy': 6, 'do_back_up': 2, 'do_value': 2,
       'do_open_and_unlink': 2, 'do_compare': 4, 'do_commit': 5, 'do_edit_verb': 1, 'do_edits': 4, 'do_discard': 8, 'do_discard_all': 1, 'do_unmount': 1,
       'do_kill': 2}
RAW = {'do_append': 3, 'do_truncate': 3, 'do_rewrite': 5, 'do_set': 6, 'do_link': 4, 'do_exchange': 4}
DEEP = {'do_rename_folder': 4, 'do_remove_tree': 1, 'do_mkdir': 3, 'do_rmdir': 1, 'do_copy_folder': 1, 'do_mistake': 3}


def choose(seed):
    """The format and options of a seed."""
    rng = random.Random(seed)
    form = rng.choice(list(ENDINGS))
    return form, sorted(option for option in OPTIONS if rng.random() < .25 and not (option == 'backup' and form in ('set', 'dcp')))


def run_seed(form, seed, n_steps, options, is_over=lambda: False):
    """Returns how many steps were done. A problem comes with the line to run it again, and what was done last."""
    with tempfile.TemporaryDirectory(dir=program.folder_of_folders()) as top:
        world = None
        try:
            world = World(top, form, seed, options)
            while world.n_steps < n_steps and not is_over():
                world.step()
            world.compare()
            world.do_unmount(*world.walk(world.shadow))
        except (AssertionError, OSError, KeyError, ValueError, subprocess.SubprocessError) as problem:
            last = [] if world is None else world.history[-15:]
            raise Problem('%s\nagain: python3 -m wfs_testlib.random_edits %s %s %d %s\n%s' % (
                problem, form, seed, n_steps, ' '.join(options), '\n'.join(last))) from problem
        finally:
            mounts.force_unmount(os.path.join(top, 'mnt'))
        world.close()
        return world.n_steps


if __name__ == '__main__':
    run_seed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
