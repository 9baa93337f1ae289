# SPDX-License-Identifier: MIT
"""What people do with checkpoints every day, against the scripts in Python that do it."""
import os
import statistics
import sys

from benchlib.make import MIB, write_safetensors
from benchlib.measure import has_module, run, run_accounted

SAFE = "import sys; from safetensors import safe_open; from safetensors.numpy import load_file, save_file; import numpy; file = sys.argv[1]; "
# Mapping the file, which PyTorch does since 2.1 if it is asked to, is the least that it can do.
TORCH = "import sys, torch, numpy; file = torch.load(sys.argv[1], **({'mmap': True} if 'mmap' in torch.load.__code__.co_varnames else {})); "
SCRIPTS = {
    ".safetensors": {
        "list keys, dtypes and shapes": SAFE + (
            "f = safe_open(file, 'np')\n"
            "for key in f.keys(): part = f.get_slice(key); print(key, part.get_dtype(), part.get_shape())"),
        "one tensor as .npy": SAFE + "numpy.save(sys.argv[2], safe_open(file, 'np').get_tensor('layers.7.weight'))",
        "rename a key, new file": SAFE + (
            "tensors = load_file(file); tensors['layers.7.renamed'] = tensors.pop('layers.7.weight'); save_file(tensors, sys.argv[2])"),
    },
    ".pth": {
        "list keys, dtypes and shapes": TORCH + "[print(key, tensor.dtype, list(tensor.shape)) for key, tensor in file.items()]",
        "one tensor as .npy": TORCH + "numpy.save(sys.argv[2], file['layers.7.weight'].numpy())",
        "rename a key, new file": TORCH + "file['layers.7.renamed'] = file.pop('layers.7.weight'); torch.save(file, sys.argv[2])",
    },
}


def commands(program, source, output):
    return {
        "list keys, dtypes and shapes": [program, "ls", source],
        "one tensor as .npy": ["sh", "-c", '"$0" cat --npy "$1" layers.7.weight >"$2"', program, source, output],
        "rename a key, new file": [program, "edit", source, output, "--rename", "layers.7.weight", "layers.7.renamed"],
    }


def summary(runs):
    """Processor time and memory; dashes where nothing was run."""
    if not runs:
        return "-", "-"
    return "%.3f s" % statistics.median(seconds for _, _, seconds in runs), "%.0f MB" % max(mb for _, mb, _ in runs)


def everyday(bench):
    n, size = (64 if bench.quick else 256), 4 * MIB
    bench.section("%d tensors of 4 MiB, against a script that uses the library of the format: processor time and peak memory" % n,
                 ["file", "job", "library", "its memory", "weightfs", "memory"])
    source, pth = bench.path("model.safetensors"), bench.path("model.pth")
    write_safetensors(source, [("layers.%d.weight" % i, "F32", [1024, size // 4096], size) for i in range(n)], os.urandom(MIB))
    run([bench.program, "convert", source, pth])
    for path, module in ((source, "safetensors"), (pth, "torch")):
        extension = os.path.splitext(path)[1]
        for job, script in SCRIPTS[extension].items():
            output = bench.path("out.npy" if "npy" in job else "out" + extension)
            theirs, mine = [], []
            for _ in range(bench.n_runs):
                if has_module(module):
                    theirs.append(run_accounted([sys.executable, "-c", script, path, output]))
                    run(["rm", "-f", output])
                mine.append(run_accounted(commands(bench.program, path, output)[job]))
                run(["rm", "-f", output])
            bench.row(extension, job, *summary(theirs), *summary(mine))
        os.unlink(path)
