# SPDX-License-Identifier: MIT
"""Distributed checkpoints of PyTorch: directories as many ranks write them, made without torch and without the program."""
import os
import shutil
import statistics
import struct
import zlib

from benchlib.make import MIB
from benchlib.measure import run, run_measured

META, FILES = b"torch.distributed.checkpoint.metadata", b"torch.distributed.checkpoint.filesystem"
MEMOIZE = b"\x94"


def _text(value):
    return b"\x8c%c%s" % (len(value), value)


def _integer(n):
    if n < 256:
        return b"K%c" % n
    if n < 65536:
        return b"M" + struct.pack("<H", n)
    if n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little")
    return b"\x8a%c%s" % (len(raw), raw)


class Pickle:
    """Opcodes as Python's pickler (protocol 4) writes them, with a memo entry for whatever it makes one for."""

    def __init__(self, file):
        self.file, self.n_memo, self.known, self.parts = file, 0, {}, []
        file.write(b"\x80\x04")

    def put(self, *parts):
        self.parts += parts
        if len(self.parts) > 100000:
            self.flush()

    def flush(self):
        frame = b"".join(self.parts)
        self.file.write(b"\x95" + struct.pack("<Q", len(frame)) + frame)
        self.parts = []

    def memoize(self, n=1):
        self.put(MEMOIZE * n)
        self.n_memo += n

    def get(self, number):
        self.put(b"h%c" % number if number < 256 else b"j" + struct.pack("<I", number))

    def own_text(self, value):
        """A str object of its own: as a rank that sent it made one."""
        self.put(_text(value))
        self.memoize()

    def text(self, value):
        if value in self.known:
            self.get(self.known[value])
        else:
            self.known[value] = self.n_memo
            self.own_text(value)

    def name(self, module, name):
        if (module, name) in self.known:
            self.get(self.known[module, name])
            return
        self.text(module)
        self.text(name)
        self.put(b"\x93")
        self.known[module, name] = self.n_memo
        self.memoize()

    def begin(self, module, name):
        """An object, up to its dict of attributes."""
        self.name(module, name)
        self.put(b")\x81")
        self.memoize()
        self.put(b"}")
        self.memoize()
        self.put(b"(")

    def size(self, numbers):
        self.name(b"torch", b"Size")
        self.put(*map(_integer, numbers), b")\x85\x86\x87"[len(numbers):len(numbers) + 1])
        self.memoize(1 if numbers else 0)
        self.put(b"\x85")
        self.memoize()
        self.put(b"R")
        self.memoize()

    def end(self):
        self.put(b"ub")


def _zip(records):
    """[(name, bytes)] stored, data aligned to 64: the archive."""
    out, directory = b"", b""
    for name, data in records:
        name = b"archive/" + name
        pad = -(len(out) + 30 + len(name) + 4) % 64
        extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
        fields = struct.pack("<HHHHHIIIHH", 0, 0, 0, 0, 0, zlib.crc32(data), len(data), len(data), len(name), len(extra))
        directory += b"PK\1\2" + struct.pack("<H", 0) + fields[:22] + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, len(out)) + name
        out += b"PK\3\4" + fields + name + extra + data
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(records), len(records), len(directory), len(out), 0)
    return out + directory + end


def item(shape, data):
    """A torch.save file of one F32 tensor."""
    n = len(data) // 4
    strides = [shape[1], 1] if len(shape) == 2 else [1] * len(shape)
    numbers = lambda values: b"(" + b"".join(map(_integer, values)) + b"t"
    long_text = lambda value: b"X" + struct.pack("<I", len(value)) + value
    pickle = (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + long_text(b"storage") + b"ctorch\nFloatStorage\n" + long_text(b"0") +
              long_text(b"cpu") + _integer(n) + b"tQK\0" + numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR.")
    return _zip([(b"data.pkl", pickle), (b"byteorder", b"little"), (b"data/0", data), (b"version", b"3\n")])


def write_metadata(path, tensors, storage):
    """tensors: [(key, shape, [(offsets, sizes)])]; storage: [(key, index, offsets, file, offset, length)], as the ranks
    reported them one after the other; all bytes."""
    with open(path, "wb") as file:
        p = Pickle(file)
        p.begin(META, b"Metadata")
        p.text(b"state_dict_metadata")
        p.put(b"}")
        p.memoize()
        for key, shape, boxes in tensors:
            p.text(key)
            p.begin(META, b"TensorStorageMetadata")
            p.text(b"properties")
            p.name(META, b"TensorProperties")
            p.put(b")\x81")
            p.memoize()
            p.put(b"(")
            p.name(b"torch", b"float32")
            p.put(b"NNNNt")
            p.memoize()
            p.put(b"b")
            p.text(b"size")
            p.size(shape)
            p.text(b"chunks")
            p.put(b"]")
            p.memoize()
            p.put(b"(")
            for offsets, sizes in boxes:
                p.begin(META, b"ChunkStorageMetadata")
                p.text(b"offsets")
                p.size(offsets)
                p.text(b"sizes")
                p.size(sizes)
                p.end()
            p.put(b"eub" if boxes else b"0ub")
            p.put(b"s")
        p.text(b"planner_data")
        p.put(b"}")
        p.memoize()
        for key, _, _ in tensors:
            p.own_text(key)
            p.text(key)
            p.put(b"\x85")
            p.memoize()
            p.put(b"s")
        p.text(b"storage_data")
        p.put(b"}")
        p.memoize()
        for key, index, offsets, name, offset, length in storage:
            p.begin(META, b"MetadataIndex")
            p.text(b"fqn")
            p.own_text(key)
            p.text(b"index")
            p.put(_integer(index))
            p.text(b"offset")
            p.size(offsets)
            p.end()
            p.begin(FILES, b"_StorageInfo")
            p.text(b"relative_path")
            p.text(name)
            p.text(b"offset")
            p.put(_integer(offset))
            p.text(b"length")
            p.put(_integer(length))
            p.end()
            p.put(b"s")
        p.put(b"ub.")
        p.flush()


def layer_names(n_tensors):
    return [b"model.layers.%d.weight" % i for i in range(n_tensors)]


def trained_names(n_parameters):
    """Keys of a model and of the state that AdamW has for each parameter; the steps are scalars."""
    names = layer_names(n_parameters)
    return names + [b"optim.state.%s.%s" % (name, part) for name in names for part in (b"exp_avg", b"exp_avg_sq", b"step")]


def _boxes(i, n_ranks, rows, columns):
    """Cut by rows and by columns in turn."""
    for rank in range(n_ranks):
        if i % 2 == 0:
            yield (rows // n_ranks * rank, 0), (rows // n_ranks, columns)
        else:
            yield (0, columns // n_ranks * rank), (rows, columns // n_ranks)


def write_ranks(folder, n_ranks, names, rows, columns, n_filled=None):
    """F32 tensors [rows, columns] in parts, and scalars where the name ends in step; only the first n_filled have bytes, the
    others are holes."""
    os.makedirs(folder)
    tensors, storage, at = [], [[] for _ in range(n_ranks)], [0] * n_ranks
    pattern = os.urandom(MIB)
    files = [open(os.path.join(folder, "__%d_0.distcp" % rank), "wb") for rank in range(n_ranks)]
    hole = len(item([rows // n_ranks, columns], b""))
    for i, key in enumerate(names):
        is_scalar = key.endswith(b".step")
        boxes = [((), ())] if is_scalar else list(_boxes(i, n_ranks, rows, columns))
        for index, (offsets, sizes) in enumerate(boxes):
            rank = i % n_ranks if is_scalar else index
            n_bytes = 4 if is_scalar else 4 * sizes[0] * sizes[1]
            if n_filled is None or i < n_filled:
                data = item(list(sizes), (pattern * (n_bytes // MIB + 1))[:n_bytes])
                files[rank].seek(at[rank])
                files[rank].write(data)
                length = len(data)
            else:
                length = hole + n_bytes
            storage[rank].append((key, index, offsets, b"__%d_0.distcp" % rank, at[rank], length))
            at[rank] += length
        tensors.append((key, () if is_scalar else (rows, columns), boxes))
    for file, n_bytes in zip(files, at):
        file.truncate(n_bytes)
        file.close()
    write_metadata(os.path.join(folder, ".metadata"), tensors, [row for rows_of_rank in storage for row in rows_of_rank])


def distributed(bench):
    """The two jobs that such a directory is opened for: one file of all, one tensor out of very many."""
    n = 8 if bench.quick else 32
    bench.section("Distributed checkpoints", ["job", "cp -r + sync", "weightfs", "ours / cp", "peak memory"])
    source, copy, output = bench.path("ranks"), bench.path("copy"), bench.path("out.safetensors")
    write_ranks(source, 4, layer_names(n), 4096, 4096)
    run(["sync"])
    theirs, mine = [], []
    for _ in range(bench.n_runs):
        theirs.append(run(["sh", "-c", 'cp -r "$0" "$1" && sync', source, copy]))
        shutil.rmtree(copy)
        run(["sync"])
        mine.append(run_measured([bench.program, "convert", source, output]))
        os.unlink(output)
        run(["sync"])
    t, m = statistics.median(theirs), statistics.median(seconds for seconds, _ in mine)
    bench.row("convert %d MiB of 4 ranks to .safetensors" % (n * 64), "%.2f s" % t, "%.2f s" % m, "%.2f" % (m / t),
              "%.0f MB" % max(mb for _, mb in mine))
    shutil.rmtree(source)
    n_ranks, n_parameters = (32, 200) if bench.quick else (256, 2000)
    write_ranks(source, n_ranks, trained_names(n_parameters), 512, 512, n_filled=2)
    for name, command in [("ls", ["ls", source]), ("one tensor", ["cat", source, "model.layers.1.weight"])]:
        found = [run_measured([bench.program, *command]) for _ in range(bench.n_runs)]
        bench.row("%d ranks, %d parameters with AdamW: %s" % (n_ranks, n_parameters, name), "-", "%.2f s" % statistics.median(s for s, _ in found), "-",
                  "%.0f MB" % max(mb for _, mb in found))
    shutil.rmtree(source)
