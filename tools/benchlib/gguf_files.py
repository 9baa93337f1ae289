# SPDX-License-Identifier: MIT
"""GGUF files that the reference package makes, in layouts of public models, against its own tools. Decoded blocks are any bytes; other data are holes."""
import os
import statistics
import subprocess
import sys

from benchlib.make import MIB
from benchlib.measure import run_accounted

# Layers, hidden size, inner size, size of keys and values, type of most weights; the sizes of Qwen2 0.5B, Llama 3 8B and Qwen3 32B.
LAYOUTS = {"small": (24, 1024, 4864, 256, "Q8_0"), "middle": (32, 4096, 14336, 1024, "Q4_K"), "large": (64, 5120, 25600, 1024, "Q4_K"),
           "4 GiB": (25, 4096, 14336, 1024, "Q4_K")}
TYPES = ("Q4_K", "Q6_K", "Q8_0", "IQ2_XXS")

MAKE = """import os, sys, gguf, numpy
path, n_layers, hidden, inner, n_kv, kind = sys.argv[1], *map(int, sys.argv[2:6]), gguf.GGMLQuantizationType[sys.argv[6]]
writer, n_tokens = gguf.GGUFWriter(path, "llama"), 150000
writer.add_name("bench")
writer.add_block_count(n_layers)
writer.add_token_list(["token %d" % i for i in range(n_tokens)])
writer.add_token_scores([float(i) for i in range(n_tokens)])
writer.add_token_types([1] * n_tokens)
writer.add_token_merges(["token %d token %d" % (i, i + 1) for i in range(n_tokens)])
end = 0
def add(name, shape, kind):
    global end
    n_elems, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    row, n_rows = shape[-1] // n_elems * n_bytes, int(numpy.prod(shape[:-1]))
    writer.add_tensor_info(name, [*shape[:-1], row], numpy.dtype(numpy.uint8), n_rows * row, raw_dtype=kind)
    end += -(-n_rows * row // 32) * 32
F32, Q6_K = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q6_K
add("token_embd.weight", (n_tokens, hidden), kind)
for i in range(n_layers):
    for name, shape, of in (("attn_norm", (hidden,), F32), ("ffn_norm", (hidden,), F32), ("attn_q", (hidden, hidden), kind),
                            ("attn_k", (n_kv, hidden), kind), ("attn_v", (n_kv, hidden), Q6_K), ("attn_output", (hidden, hidden), kind),
                            ("ffn_gate", (inner, hidden), kind), ("ffn_up", (inner, hidden), kind), ("ffn_down", (hidden, inner), Q6_K)):
        add("blk.%d.%s.weight" % (i, name), shape, of)
add("output_norm.weight", (hidden,), F32)
add("output.weight", (n_tokens, hidden), Q6_K)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_ti_data_to_file()
start = -(-writer.fout[0].tell() // 32) * 32
writer.close()
os.truncate(path, start + end)
"""

BLOCKS = """import sys, gguf, numpy
path, kind, n_bytes = sys.argv[1], gguf.GGMLQuantizationType[sys.argv[2]], int(sys.argv[3])
row = gguf.GGML_QUANT_SIZES[kind][1] * 16
piece = numpy.random.default_rng(1).integers(0, 256, (1024, row), dtype=numpy.uint8)
n_pieces = n_bytes // piece.nbytes
writer = gguf.GGUFWriter(path, "llama")
writer.add_tensor_info("w", (n_pieces * 1024, row), numpy.dtype(numpy.uint8), n_pieces * piece.nbytes, raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_ti_data_to_file()
writer.fout[0].write(bytes(-writer.fout[0].tell() % 32))
for _ in range(n_pieces):
    piece.tofile(writer.fout[0])
writer.close()
"""

# In pieces, because all at once takes sixteen times the memory.
DECODE = """import sys, gguf, numpy, resource
tensor = gguf.GGUFReader(sys.argv[1]).tensors[0]
numpy.seterr(all="ignore")
before = resource.getrusage(resource.RUSAGE_SELF)
for i in range(0, len(tensor.data), 1024):
    gguf.quants.dequantize(tensor.data[i:i + 1024], tensor.tensor_type)
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024)
"""


def make(bench, script, name, *words):
    path = bench.path(name)
    subprocess.run([sys.executable, "-c", script, path, *map(str, words)], check=True)
    return path


def accounted(bench, argv, prepare=lambda: None):
    """Medians of wall seconds, MB and seconds of processor time."""
    rows = []
    for _ in range(3 if bench.quick else 5):
        prepare()
        rows.append(run_accounted(argv))
    return [statistics.median(row[i] for row in rows) for i in range(3)]


def mount_cost(bench, path):
    """Seconds of processor time and MB of a mount whose root was listed."""
    with bench.mounted(path):
        os.listdir(bench.mnt)
        worker = bench.worker()
        with open("/proc/%d/stat" % worker) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), bench.memory()[1]


def headers(bench):
    bench.section("GGUF files with 150,000 tokens, scores, types and merges: processor time, and the most memory",
                  ["layout", "size", "GGUFReader", "memory", "`ls`", "memory", "mount", "memory"])
    reader = [sys.executable, "-c", "import sys, gguf; gguf.GGUFReader(sys.argv[1])"]
    for name in ("small", "middle", "large"):
        path = make(bench, MAKE, "model.gguf", *LAYOUTS[name])
        _, reader_mb, reader_s = accounted(bench, [*reader, path])
        _, ls_mb, ls_s = accounted(bench, [bench.program, "ls", path])
        mount_s, mount_mb = mount_cost(bench, path)
        bench.row("%s, %d layers" % (name, LAYOUTS[name][0]), "%.1f GB" % (os.path.getsize(path) / 1e9), "%.2f s" % reader_s,
                  "%.0f MB" % reader_mb, "%.2f s" % ls_s, "%.0f MB" % ls_mb, "%.2f s" % mount_s, "%.0f MB" % mount_mb)
        os.unlink(path)


def edits(bench):
    name = "small" if bench.quick else "4 GiB"
    sparse, path, out = make(bench, MAKE, "sparse.gguf", *LAYOUTS[name]), bench.path("model.gguf"), bench.path("out.gguf")
    subprocess.run(["cp", "--sparse=never", sparse, path], check=True)
    os.unlink(sparse)
    bench.section("One text of the metadata of a GGUF of %.1f GB, a new file" % (os.path.getsize(path) / 1e9),
                  ["job", "time", "time / cp", "processor time", "memory"])

    def prepare():
        if os.path.exists(out):
            os.unlink(out)
        subprocess.run(["sync"], check=True)

    first = None
    for job, argv in {"`cp` and `sync`": ["sh", "-c", 'cp "$0" "$1" && sync "$1"', path, out],
                      "`weightfs edit --set-metadata`": [bench.program, "edit", "--set-metadata", "general.name=other", path, out],
                      "`gguf-new-metadata`": [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--general-name", "other", path, out]}.items():
        seconds, memory, processor = accounted(bench, argv, prepare)
        first = first or seconds
        bench.row(job, "%.1f s" % seconds, "%.2f" % (seconds / first), "%.1f s" % processor, "%.0f MB" % memory)
    os.unlink(path)
    os.unlink(out)


def decoding(bench):
    n_mib = 64 if bench.quick else 1024
    bench.section("%d MiB of blocks as F32: processor time, that of numpy without its start; the ratio is numpy / weightfs" % n_mib,
                  ["type", "numpy of the reference, 1024 rows at a time", "memory", "`cat --cast F32`", "memory", "ratio"])
    for kind in TYPES:
        path = make(bench, BLOCKS, "blocks.gguf", kind, n_mib * MIB)
        found = subprocess.run([sys.executable, "-c", DECODE, path], check=True, capture_output=True, text=True).stdout
        theirs, memory = map(float, found.split())
        _, our_memory, ours = accounted(bench, [bench.program, "cat", "--cast", "F32", path, "w"])
        bench.row(kind, "%.2f s" % theirs, "%.0f MB" % memory, "%.2f s" % ours, "%.0f MB" % our_memory, "%.0f" % (theirs / ours))
        os.unlink(path)


def gguf_files(bench):
    headers(bench)
    edits(bench)
    decoding(bench)
