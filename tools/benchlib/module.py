# SPDX-License-Identifier: MIT
"""The Python module beside safetensors and torch: the time of the job itself, without imports, and the memory that it adds at its peak."""
import os
import statistics
import subprocess
import sys

from benchlib.make import MIB, many_tensors, write_safetensors
from benchlib.measure import has_module, run

# Peak memory of this process, from where its imports have left it.
FRAME = """import os, sys, time
%s
def memory(name):
    with open('/proc/self/status') as file:
        return int(file.read().split(name + ':')[1].split()[0])
open('/proc/self/clear_refs', 'w').write('5')
path, before, start = sys.argv[1], memory('VmRSS'), time.perf_counter()
%s
print(time.perf_counter() - start, (memory('VmHWM') - before) / 1024)
"""
SAFE, TORCH, OURS = "from safetensors import safe_open; import safetensors.numpy", "import torch", "import numpy, weightfs"
SAFE_TORCH, OURS_TORCH = "import torch; from safetensors.torch import load_file", "import torch; from weightfs.torch import load_file"
LOAD_PTH = "file = torch.load(path, **({'mmap': True} if 'mmap' in torch.load.__code__.co_varnames else {}))"
# Job: file, imports and code of a library, the same of ours.
JOBS = {
    "open and list %s keys": ("keys.safetensors", SAFE, "keys = list(safe_open(path, 'np').keys())", OURS, "keys = list(weightfs.open(path))"),
    "all of %s to numpy": ("model.safetensors", SAFE, "arrays = safetensors.numpy.load_file(path)", OURS,
                           "arrays = {key: tensor.numpy() for key, tensor in weightfs.open(path).items()}"),
    "all of %s to torch, mapped": ("model.safetensors", SAFE_TORCH, "tensors = load_file(path)", OURS_TORCH, "tensors = load_file(path)"),
    "all of %s to torch, mapped, and summed": ("model.safetensors", SAFE_TORCH, "sums = [float(tensor.sum()) for tensor in load_file(path).values()]",
                                               OURS_TORCH, "sums = [float(tensor.sum()) for tensor in load_file(path).values()]"),
    "all of %s to torch, read": ("model.safetensors", SAFE_TORCH, "tensors = load_file(path, backend='pread')", OURS_TORCH,
                                 "tensors = load_file(path, backend='pread')"),
    "one tensor of 16 MiB of %s": ("model.safetensors", SAFE, "array = safe_open(path, 'np').get_tensor('layers.7.weight')", OURS,
                                   "array = weightfs.open(path)['layers.7.weight'].numpy()"),
    "1 %% of a tensor, rows, of %s": ("model.safetensors", SAFE, "array = safe_open(path, 'np').get_slice('layers.7.weight')[100:120]", OURS,
                                      "array = weightfs.open(path)['layers.7.weight'][100:120]"),
    "1 %% of a tensor, columns, of %s": ("model.safetensors", SAFE, "array = safe_open(path, 'np').get_slice('layers.7.weight')[:, 100:120]", OURS,
                                         "array = weightfs.open(path)['layers.7.weight'][:, 100:120]"),
    "1 %% of a tensor of a .pth of %s": ("model.pth", TORCH, LOAD_PTH + "; part = file['layers.7.weight'][100:120].clone()", OURS,
                                         "array = weightfs.open(path)['layers.7.weight'][100:120]"),
}


def measured(bench, imports, code, path):
    """Seconds and MB, or None without the library."""
    module = imports.replace(",", " ").replace(";", " ").split()
    if not all(has_module(name) for name in ("torch", "safetensors") if any(word.startswith(name) for word in module)):
        return None
    folder = os.path.join(os.path.dirname(os.path.dirname(bench.program)), "python")
    out = subprocess.run([sys.executable, "-c", FRAME % (imports, code), path], check=True, capture_output=True, text=True,
                         env=dict(os.environ, PYTHONPATH=folder)).stdout
    return tuple(map(float, out.split()))


def python(bench):
    n_keys, n_tensors = (50000, 16) if bench.quick else (500000, 128)
    write_safetensors(bench.path("keys.safetensors"), many_tensors(n_keys, 10))
    tensors = [("layers.%d.weight" % i, "F32", [2048, 2048], 16 * MIB) for i in range(n_tensors)]
    write_safetensors(bench.path("model.safetensors"), tensors, os.urandom(MIB))
    run([bench.program, "convert", bench.path("model.safetensors"), bench.path("model.pth")])
    bench.section("The Python module, beside safetensors and torch: time of the job and memory that it adds; files are cached",
                  ["job", "library", "its memory", "weightfs", "memory", "ratio"])
    for job, (name, their_imports, their_code, imports, code) in JOBS.items():
        theirs, mine = [], []
        for _ in range(bench.n_runs + 1):  # the first fills the page cache
            theirs.append(measured(bench, their_imports, their_code, bench.path(name)))
            mine.append(measured(bench, imports, code, bench.path(name)))
        cells = []
        for runs in (theirs[1:], mine[1:]):
            cells += ["-", "-"] if None in runs else ["%.4f s" % statistics.median(run[0] for run in runs), "%.0f MB" % max(run[1] for run in runs)]
        ratio = "-" if None in theirs else "%.2f" % (statistics.median(run[0] for run in theirs[1:]) / statistics.median(run[0] for run in mine[1:]))
        bench.row(job % ("{:,}".format(n_keys) if "keys" in job else "%.2g GiB" % (n_tensors / 64)), *cells, ratio)
