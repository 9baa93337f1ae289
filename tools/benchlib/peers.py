# SPDX-License-Identifier: MIT
"""Each job beside what people use for it otherwise: the packages of the formats, and the tools of the system. Both sides write to the disk (fsync)
where one of them does; the sources are cached."""
import os
import statistics
import sys

from benchlib.make import MIB, write_safetensors
from benchlib.measure import run, run_accounted

# Of tools/test --peers: it has the safetensors package.
PYTHON = "build/peers/bin/python"

SAFE = "import os, sys; from safetensors import safe_open; from safetensors.numpy import load_file, save_file; import numpy; source, out = sys.argv[1:3]\n"
# Mapping the file, which newer versions do if they are asked to, is the least that PyTorch can do.
TORCH = ("import os, sys, torch; from safetensors import torch as st; source, out = sys.argv[1:3]\n"
         "load = lambda path: torch.load(path, **({'mmap': True} if 'mmap' in torch.load.__code__.co_varnames else {}))\n")
SYNC = "\nfd = os.open(out, os.O_RDONLY); os.fsync(fd)"

KEYS = SAFE + "f = safe_open(source, 'np')\nfor key in f.keys(): part = f.get_slice(key); print(key, part.get_dtype(), part.get_shape())"
EACH = SAFE + "f = safe_open(source, 'np')\nfor key in f.keys():\n    t = f.get_tensor(key)\n    "
NUMBERS = EACH + "print(key, t.min(), t.max(), t.mean(dtype='f8'), t.std(dtype='f8'), (t == 0).sum(), numpy.histogram(t, 16)[0])"
EQUAL = (TORCH + "a, b = (__import__('safetensors').safe_open(path, 'pt') for path in (source, out))\n"
         "print([key for key in a.keys() if not torch.equal(a.get_tensor(key), b.get_tensor(key))])")

DISK = "the disk, which is never more than 64 MiB behind, so that an interrupted job ends soon; and the output is read back"
PROMISE = "the output is read back and compared before it gets its name"
LAYER = "layers.7."


class Peers:
    def __init__(self, bench):
        self.bench = bench
        self.python = PYTHON if os.path.exists(PYTHON) else sys.executable
        self.out = bench.path("out")

    def row(self, job, what, theirs, ours, why):
        """One of each in turns. why: what limits weightfs, printed where it is behind."""
        runs = [[], []]
        for _ in range(5):
            for side, argv in enumerate((theirs, ours)):
                seconds, _, processor = run_accounted(argv)
                runs[side].append((seconds, processor))
                run(["rm", "-rf", self.out, self.out + ".safetensors", self.out + ".pth"])
        times = [[seconds for seconds, _ in side] for side in runs]
        medians = [statistics.median(side) for side in times]
        ratio = medians[0] / medians[1]
        verdict = "weightfs" if ratio > 1.05 else "equal" if ratio > 0.95 else "the other: " + why
        self.bench.row(job, what, *("%.3f s (%.3f to %.3f)" % (median, min(side), max(side)) for median, side in zip(medians, times)), "%.2f" % ratio,
                       *("%.2f s" % statistics.median(processor for _, processor in side) for side in runs), verdict)

    def script(self, text, source, extension=""):
        return [self.python, "-c", text, source, self.out + extension]

    def mounted(self, command, source):
        """A job in a mount of its own, with mounting and unmounting; $0 is the mount point."""
        return ["sh", "-c", '"$1" "$2" "$0" && %s && "$1" umount "$0" >/dev/null' % command, self.bench.mnt, self.bench.program, source, self.out]


def reading(peers, source, second):
    weightfs = peers.bench.program
    peers.row("list keys, dtypes and shapes, .safetensors", "safetensors, `safe_open`", peers.script(KEYS, source), [weightfs, "ls", source], "")
    peers.row("read all, .safetensors", "safetensors, numpy `load_file`", peers.script(SAFE + "load_file(source)", source),
              peers.mounted('find "$0" -type f -exec cat {} + >/dev/null', source), "bytes of a mount go through the kernel twice")
    peers.row("one tensor as .npy", "safetensors, numpy", peers.script(SAFE + "numpy.save(out, safe_open(source, 'np').get_tensor('layers.7.weight'))", source, ".npy"),
              ["sh", "-c", '"$0" cat --npy "$1" layers.7.weight >"$2"', weightfs, source, peers.out], "")
    peers.row("statistics and histogram of all tensors", "safetensors, numpy", peers.script(NUMBERS, source), [weightfs, "show", source], "")
    peers.row("search for NaN and infinities", "safetensors, `numpy.isfinite`", peers.script(EACH + "print(key, numpy.isfinite(t).all())", source),
              [weightfs, "check", "--values", source], "")
    peers.row("search for NaN and infinities", "`cat` of the file to /dev/null", ["sh", "-c", 'cat "$0" >/dev/null', source], [weightfs, "check", "--values", source],
              "elements are copied from the page cache and looked at; `cat` only copies")
    peers.row("compare two equal files", "`torch.equal` in a loop", [peers.python, "-c", EQUAL, source, second], [weightfs, "diff", source, second], "")
    peers.row("compare two equal files", "`cmp`", ["cmp", source, second], [weightfs, "diff", source, second], "both read both files, and no more")
    peers.row("hashes of all tensors", "`sha256sum` of the file", ["sha256sum", source], [weightfs, "sum", source],
              "two hashes of each tensor, SHA-256 and XXH3")


def writing(peers, source):
    weightfs, out = peers.bench.program, peers.out + ".safetensors"
    convert = [weightfs, "convert", source, out]
    plain = ["sh", "-c", 'cp "$0" "$1" && sync "$1"', source, out]
    peers.row("rename a key", "safetensors, numpy", peers.script(SAFE + (
        "t = load_file(source); t['renamed'] = t.pop('layers.7.weight'); save_file(t, out)") + SYNC, source, ".safetensors"),
              [weightfs, "edit", source, out, "--rename", "layers.7.weight", "renamed"], DISK)
    peers.row("rename a key", "`cp` and `sync` of the file", plain, [weightfs, "edit", source, out, "--rename", "layers.7.weight", "renamed"], DISK)
    peers.row("one layer as a file", "safetensors, numpy", peers.script(SAFE + (
        "f = safe_open(source, 'np'); save_file({k: f.get_tensor(k) for k in f.keys() if k.startswith('%s')}, out)" % LAYER) + SYNC, source, ".safetensors"),
              [*convert, "--include=^" + LAYER.replace(".", r"\.")], DISK)
    peers.row("cast F32 to BF16", "torch", peers.script(TORCH + (
        "st.save_file({k: t.to(torch.bfloat16) for k, t in st.load_file(source).items()}, out)") + SYNC, source, ".safetensors"), [*convert, "--cast=BF16"], DISK)
    peers.row("cast F32 to BF16", "`cp` and `sync` of the file", plain, [*convert, "--cast=BF16"], DISK)
    peers.row("transpose all matrices", "torch", peers.script(TORCH + (
        "st.save_file({k: t.t().contiguous() for k, t in st.load_file(source).items()}, out)") + SYNC, source, ".safetensors"), [*convert, "--transpose=."], PROMISE)
    peers.row("the mean of two files", "torch", peers.script(TORCH + (
        "a = st.load_file(source); st.save_file({k: (t + a[k]) / 2 for k, t in st.load_file(source).items()}, out)") + SYNC, source, ".safetensors"),
              [*convert, "--average=" + source], PROMISE)
    peers.row("the mean of two files", "`cp` and `sync` of both", ["sh", "-c", 'cp "$0" "$1" && sync "$1" && cp "$0" "$2" && sync "$2"', source, out, peers.out],
              [*convert, "--average=" + source], PROMISE)


def other_formats(peers, source, pth):
    weightfs, out = peers.bench.program, peers.out
    peers.row("list keys, dtypes and shapes, .pth", "torch", peers.script(TORCH + "for k, t in load(source).items(): print(k, t.dtype, list(t.shape))", pth),
              [weightfs, "ls", pth], "")
    peers.row("one tensor as .npy, .pth", "torch", peers.script(TORCH + "import numpy; numpy.save(out, load(source)['layers.7.weight'].numpy())", pth, ".npy"),
              ["sh", "-c", '"$0" cat --npy "$1" layers.7.weight >"$2"', weightfs, pth, out], "")
    peers.row(".pth to .safetensors", "torch, safetensors", peers.script(TORCH + "st.save_file(load(source), out)" + SYNC, pth, ".safetensors"),
              [weightfs, "convert", pth, out + ".safetensors"], DISK)
    peers.row(".safetensors to .pth", "torch, safetensors", peers.script(TORCH + "torch.save(st.load_file(source), out)" + SYNC, source, ".pth"),
              [weightfs, "convert", source, out + ".pth"], DISK)
    for name in ("model.safetensors", "model.pth"):
        same = source if name.endswith("safetensors") else pth
        peers.row("`cp` out of `.weightfs/out/%s`, with a mount" % name, "`cp` and `sync` of such a file", ["sh", "-c", 'cp "$0" "$1" && sync "$1"', same, out],
                  peers.mounted('cp "$0/.weightfs/out/%s" "$3" && sync "$3"' % name, source), "the kernel takes a page for every 4 KiB that a mount reads, and fills it with a second copy")
    archive = peers.bench.path("files.tar")
    run([weightfs, "extract", "--directory=" + out, source])
    run(["tar", "-cf", archive, "-C", out, "."])
    run(["rm", "-rf", out])
    peers.row("all tensors as files", "`tar -x` of an archive of them", ["sh", "-c", 'mkdir "$1" && tar -xf "$0" -C "$1" && sync -f "$1"', archive, out],
              ["sh", "-c", '"$0" extract --directory="$2" "$1" && sync -f "$2"', weightfs, source, out], DISK)
    peers.row("archive of all tensors", "`tar -c` of files", ["sh", "-c", 'tar -cf "$1" -C "$0" . && sync "$1"', peers.bench.path("files"), out],
              peers.mounted('tar --exclude=.weightfs -cf "$3" -C "$0" . && sync "$3"', source), "bytes of a mount go through the kernel twice")


def peers(bench):
    n = 64 if bench.quick else 128
    bench.section("%d MiB of F32 in tensors of 4 MiB: what else does the job, in turns, medians of 5 (and the range); fsync on both sides where one has it" % (4 * n),
                  ["job", "instead", "its time", "weightfs", "ratio", "its processor time", "weightfs", "ahead"])
    source, second, pth = bench.path("model.safetensors"), bench.path("second.safetensors"), bench.path("model.pth")
    # Any bytes but those of NaN and infinity.
    fill = bytes(byte & 0x3f for byte in os.urandom(MIB - 4))
    write_safetensors(source, [("layers.%d.weight" % i, "F32", [1024, 1024], 4 * MIB) for i in range(n)], fill)
    run(["cp", source, second])
    run([bench.program, "convert", source, pth])
    run(["mkdir", bench.path("files")])
    run([bench.program, "extract", "--overwrite", "--files=raw", "--directory=" + bench.path("files"), source])
    one = Peers(bench)
    reading(one, source, second)
    writing(one, source)
    other_formats(one, source, pth)
