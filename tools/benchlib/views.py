# SPDX-License-Identifier: MIT
"""Views: what is shown in another order or as another dtype, and checkpoints in several files."""
import glob
import json
import os
import shutil
import statistics

from benchlib.make import MIB, many_tensors, write_safetensors
from benchlib.measure import has_torch, python_seconds, run

N = 4096  # rows and columns of the matrix

# All of a file in requests of the same size.
READ = """import os, sys, time
buffer = bytearray(int(sys.argv[2]))
start = time.perf_counter()
fd = os.open(sys.argv[1], os.O_RDONLY)
while os.readv(fd, [buffer]):
    pass
print(time.perf_counter() - start)
"""

# The transpose of a mapped matrix, in pieces of the same size; behind it, all at once.
NUMPY_PIECES = """import sys, time, numpy
path, offset, n, size = sys.argv[1], *map(int, sys.argv[2:])
shown = numpy.memmap(path, '<f4', 'r', offset, (n, n)).T
width, height = min(size // 4, n), max(size // (4 * n), 1)
start = time.perf_counter()
for i in range(0, n, height):
    for j in range(0, n, width):
        shown[i:i + height, j:j + width].tobytes()
print(time.perf_counter() - start)
"""
NUMPY_WHOLE = """import sys, time, numpy
path, offset, n = sys.argv[1], *map(int, sys.argv[2:])
mapped = numpy.memmap(path, '<f4', 'r', offset, (n, n))
start = time.perf_counter()
numpy.ascontiguousarray(mapped.T)
print(time.perf_counter() - start)
"""
TORCH_WHOLE = """import sys, time, torch
matrix = torch.randn(int(sys.argv[1]), int(sys.argv[1]))
start = time.perf_counter()
matrix.t().contiguous()
print(time.perf_counter() - start)
"""


def mounted_read(bench, source, n_bytes, *options):
    """Seconds to read the matrix from a mount of its own: the kernel has cached nothing of it."""
    with bench.mounted(source, *options):
        return python_seconds(READ, os.path.join(bench.mnt, "w"), str(n_bytes))


def views(bench):
    source = bench.path("matrix.safetensors")
    offset = write_safetensors(source, [("w", "F32", [N, N], 4 * N * N)], os.urandom(MIB))
    run(["cat", source])
    place = [source, str(offset), str(N)]
    bench.section("A transposed F32 matrix of %d x %d; the source is cached" % (N, N), ["job", "baseline", "weightfs", "ratio"])
    cat = lambda: run([bench.program, "cat", "--transpose", ".", source, "w"])
    if has_torch():
        bench.compare("`cat`, against t().contiguous() of torch in memory", lambda: python_seconds(TORCH_WHOLE, str(N)), cat)
    bench.compare("`cat`, against numpy from a memory map", lambda: python_seconds(NUMPY_WHOLE, *place), cat)
    for n_bytes, name in ((4096, "4 KiB"), (131072, "128 KiB"), (MIB, "1 MiB")):
        bench.compare("mount, reads of %s, against numpy from a memory map" % name,
                      lambda size=n_bytes: python_seconds(NUMPY_PIECES, *place, str(size)),
                      lambda size=n_bytes: mounted_read(bench, source, size, "transpose=."))
    bench.section("Casts of the same matrix, in a mount, reads of 1 MiB; the ratio is by bytes of the source",
                  ["cast", "read as it is", "read as cast", "ratio"])
    for dtype in ("BF16", "F16", "F8_E4M3", "F64"):
        bench.compare("F32 to " + dtype, lambda: mounted_read(bench, source, MIB),
                      lambda to=dtype: mounted_read(bench, source, MIB, "cast=" + to))
    os.unlink(source)


def write_shards(folder, tensors, n_shards):
    os.makedirs(folder)
    weight_map, n_each = {}, len(tensors) // n_shards
    for i in range(n_shards):
        name = "model-%05d-of-%05d.safetensors" % (i + 1, n_shards)
        part = tensors[i * n_each:(i + 1) * n_each]
        write_safetensors(os.path.join(folder, name), part)
        weight_map.update((key, name) for key, _, _, _ in part)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)


def shards(bench):
    n, n_shards = (10000, 20) if bench.quick else (100000, 200)
    bench.section("Mounting checkpoints of one file and of many: time in proportion to headers and index",
                  ["tensors", "files", "headers and index", "mount", "resident", "peak", "time for 1 MB of them"])
    for tensors, files in ((n // 4, n_shards // 4), (n // 2, n_shards // 2), (n, n_shards), (n, 1)):
        source = bench.path("shards" if files > 1 else "one.safetensors")
        if files > 1:
            write_shards(source, many_tensors(tensors, 10), files)
        else:
            write_safetensors(source, many_tensors(tensors, 10))
        n_bytes = sum(map(os.path.getsize, glob.glob(source + "/*") or [source])) - 4 * tensors
        measure_mounting(bench, source, tensors, files, n_bytes / 1e6)
        shutil.rmtree(source) if files > 1 else os.unlink(source)


def measure_mounting(bench, source, n_tensors, n_files, mb):
    times, resident, peak = [], 0, 0
    for _ in range(bench.n_runs):
        with bench.mounted(source) as took:
            times.append(took)
            resident, peak = bench.memory()
    took = statistics.median(times)
    bench.row(n_tensors, n_files, "%.1f MB" % mb, "%.2f s" % took, "%.0f MB" % resident, "%.0f MB" % peak, "%.0f ms" % (1000 * took / mb))
