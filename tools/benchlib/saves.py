# SPDX-License-Identifier: MIT
"""Committing and converting."""
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time

from benchlib.make import MIB, many_tensors, write_pth, write_safetensors
from benchlib.measure import has_torch, run, run_measured


def copy_and_sync(source, copy, reflink="never"):
    """Seconds; nothing is left to be written before and nothing of the copy after."""
    run(["sync"])
    seconds = run(["sh", "-c", 'cp --reflink="$0" "$1" "$2" && sync "$2"', reflink, source, copy])
    os.unlink(copy)
    run(["sync"])
    return seconds


def rename_and_sync(bench):
    return run(["sh", "-c", "mv layers/0/weight layers/0/renamed && sync ."], cwd=bench.mnt)


def write_layers(path, gib):
    n = 64 * MIB
    write_safetensors(path, [("layers.%d.weight" % i, "F32", [n // 4], n) for i in range(gib * 1024 // 64)], os.urandom(MIB))


def written_formats(bench):
    """Extensions of the formats that this build writes."""
    tiny, found = bench.path("tiny.safetensors"), []
    write_safetensors(tiny, [("a", "F32", [1], 4)])
    for extension in (".safetensors", ".bpk", ".pth"):
        output = bench.path("tiny-out" + extension)
        if subprocess.run([bench.program, "convert", tiny, output], capture_output=True, check=False).returncode == 0:
            found.append(extension)
            os.unlink(output)
    os.unlink(tiny)
    return found


def commits(bench):
    gib = 1 if bench.quick else 4
    bench.section("Renaming one key and committing, against `cp` and `sync` of the file", ["file", "cp + sync", "mv + sync of the mount", "ours / cp", "peak memory"])
    source, copy, output = bench.path("big.safetensors"), bench.path("copy.safetensors"), bench.path("out.safetensors")
    write_layers(source, gib)
    base, mine, peaks = [], [], []
    for _ in range(3):
        base.append(copy_and_sync(source, copy))
        with bench.mounted(source, "output=" + output):
            mine.append(rename_and_sync(bench))
            peaks.append(bench.memory()[1])
        os.unlink(output)
    b, m = statistics.median(base), statistics.median(mine)
    bench.row("%d GiB" % gib, "%.2f s" % b, "%.2f s" % m, "%.2f" % (m / b), "%.0f MB" % max(peaks))
    os.unlink(source)


def opens(bench):
    n = 20000 if bench.quick else 100000
    bench.section("Opening a checkpoint of %d tensors and reading one of them, in a program of its own" % n,
                 ["file", "weightfs", "peak memory", "torch.load", "its memory above that of torch", "torch / weightfs"])
    code = ("import resource,sys,time,torch; m=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; t=time.perf_counter(); "
            "x=torch.load(sys.argv[1]); print(time.perf_counter()-t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss-m)")
    tensors = many_tensors(n, 10)
    pth, bpk, plain = bench.path("many.pth"), bench.path("many.bpk"), bench.path("many.safetensors")
    write_pth(pth, tensors)
    write_safetensors(plain, tensors)
    run([bench.program, "convert", plain, bpk])
    for name in (pth, bpk, plain):
        mine, theirs = [], []
        for _ in range(bench.n_runs):
            mine.append(run_measured([bench.program, "cat", name, tensors[-1][0]]))
            if name == pth and has_torch():
                out = subprocess.run([sys.executable, "-c", code, name], check=True, capture_output=True, text=True).stdout
                theirs.append(tuple(map(float, out.split())))
        m, peak = statistics.median(seconds for seconds, _ in mine), max(mb for _, mb in mine)
        row = ["-", "-", "-"]
        if theirs:
            t = statistics.median(seconds for seconds, _ in theirs)
            row = ["%.2f s" % t, "%.0f MB" % (max(kb for _, kb in theirs) / 1024), "%.1f" % (t / m)]
        bench.row(os.path.splitext(name)[1], "%.3f s" % m, "%.0f MB" % peak, *row)
    for name in (pth, bpk, plain):
        os.unlink(name)


def conversions(bench):
    n = (64 if bench.quick else 512)
    bench.section("Converting %d MiB in tensors of 4 MiB, against `cp` and `sync` of the file" % (n * 4),
                 ["conversion", "cp + sync", "weightfs convert", "ours / cp", "peak memory"])
    size = 4 * MIB
    tensors = [("layers.%d.weight" % i, "F32", [1024, size // 4096], size) for i in range(n)]
    pth, plain, bpk, mpk = (bench.path("in" + extension) for extension in (".pth", ".safetensors", ".bpk", ".mpk"))
    write_pth(pth, tensors, os.urandom(MIB))
    run([bench.program, "convert", pth, plain])
    run([bench.program, "convert", plain, bpk])
    run([bench.program, "convert", plain, mpk])
    pairs = [(pth, ".safetensors"), (pth, ".bpk"), (pth, ".pth"), (plain, ".bpk"), (bpk, ".safetensors"), (mpk, ".bpk"), (mpk, ".mpk")]
    written = written_formats(bench)
    for source, extension in (pair for pair in pairs if pair[1] in written):
        output, base, mine = bench.path("out" + extension), [], []
        for _ in range(bench.n_runs):
            base.append(copy_and_sync(source, bench.path("copy")))
            mine.append(run_measured([bench.program, "convert", source, output]))
            os.unlink(output)
        b, m = statistics.median(base), statistics.median(seconds for seconds, _ in mine)
        bench.row("%s to %s" % (os.path.splitext(source)[1], extension), "%.2f s" % b, "%.2f s" % m, "%.2f" % (m / b),
                 "%.0f MB" % max(mb for _, mb in mine))
    for path in (pth, plain, bpk, mpk):
        os.unlink(path)


def renames(bench):
    n = 20000 if bench.quick else 500000
    bench.section("Renaming one key among many and committing", ["tensors", "cp + sync", "mv + sync of the mount", "peak memory"])
    source, copy, output = bench.path("many.safetensors"), bench.path("copy.safetensors"), bench.path("out.safetensors")
    tensors = many_tensors(n, 10)
    write_safetensors(source, tensors)
    old = tensors[0][0].replace(".", "/")
    base, mine, peaks = [], [], []
    for _ in range(3):
        base.append(copy_and_sync(source, copy))
        with bench.mounted(source, "output=" + output):
            mine.append(run(["sh", "-c", 'mv "$0" "$0-renamed" && sync .', old], cwd=bench.mnt))
            peaks.append(bench.memory()[1])
        os.unlink(output)
    bench.row(n, "%.2f s" % statistics.median(base), "%.2f s" % statistics.median(mine), "%.0f MB" % max(peaks))
    os.unlink(source)


@contextlib.contextmanager
def xfs(bench, n_bytes):
    """A mount point of an XFS in a file, or None where there can be none."""
    image, place = bench.path("xfs.img"), bench.path("xfs")
    os.makedirs(place)
    with open(image, "wb") as file:
        file.truncate(n_bytes)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
    is_there = shutil.which("mkfs.xfs") is not None and os.geteuid() == 0 and all(
        subprocess.run(argv, **quiet).returncode == 0
        for argv in (["mkfs.xfs", "-q", "-m", "reflink=1", image], ["mount", "-o", "loop", image, place]))
    try:
        yield place if is_there else None
    finally:
        if is_there:
            run(["umount", place])
        os.unlink(image)
        os.rmdir(place)


def reflinks(bench):
    gib = 1 if bench.quick else 4
    bench.section("Renaming one key and committing, where files can share blocks (XFS)", ["file", "cp --reflink + sync", "mv + sync of the mount", "peak memory"])
    with xfs(bench, (gib + 4) << 30) as place:
        if place is None:
            bench.row("%d GiB" % gib, "-", "-", "-")
            return
        source, copy, output = (os.path.join(place, name) for name in ("in.safetensors", "copy", "out.safetensors"))
        write_layers(source, gib)
        base, mine, peaks = [], [], []
        for _ in range(3):
            base.append(copy_and_sync(source, copy, "always"))
            with bench.mounted(source, "output=" + output):
                mine.append(rename_and_sync(bench))
                peaks.append(bench.memory()[1])
            os.unlink(output)
        bench.row("%d GiB" % gib, "%.2f s" % statistics.median(base), "%.2f s" % statistics.median(mine), "%.0f MB" % max(peaks))


def largemodel(bench):
    bench.section("20 Linear layers, 312 MiB: all of it read and saved", ["file", "job", "cat or cp + sync", "weightfs", "ratio", "peak memory"])
    tensors = []
    for i in range(20):
        tensors += [("layers.%d.bias" % i, "F32", [2048], 8192), ("layers.%d.weight" % i, "F32", [2048, 2000], 2048 * 2000 * 4)]
    plain = bench.path("model.safetensors")
    write_safetensors(plain, tensors, os.urandom(MIB))
    sources = [plain]
    for extension in written_formats(bench)[1:]:
        sources.append(bench.path("model" + extension))
        run([bench.program, "convert", plain, sources[-1]])
    if bench.path("model.pth") not in sources:
        sources.append(bench.path("model.pth"))
        write_pth(sources[-1], tensors, os.urandom(MIB))
    for source in sources:
        measure_reading(bench, source)
        for extension in written_formats(bench):
            measure_saving(bench, source, extension)
    for source in sources:
        os.unlink(source)


def measure_reading(bench, source):
    """Mount, all files read, unmount; against the file read as it is."""
    base, mine, peaks = [], [], []
    for _ in range(bench.n_runs):
        base.append(run(["cat", source]))
        start = time.perf_counter()
        with bench.mounted(source):
            run(["sh", "-c", "find . -type f -exec cat {} +"], cwd=bench.mnt)
            seconds = time.perf_counter() - start
            peaks.append(bench.memory()[1])
        mine.append(seconds)
    b, m = statistics.median(base), statistics.median(mine)
    bench.row(os.path.splitext(source)[1], "mount and read", "%.3f s" % b, "%.3f s" % m, "%.2f" % (b / m), "%.0f MB" % max(peaks))


def measure_saving(bench, source, extension):
    output = bench.path("out" + extension)
    base, mine = [], []
    for _ in range(bench.n_runs):
        base.append(copy_and_sync(source, bench.path("copy")))
        mine.append(run_measured([bench.program, "convert", source, output]))
        os.unlink(output)
    b, m = statistics.median(base), statistics.median(seconds for seconds, _ in mine)
    bench.row(os.path.splitext(source)[1], "convert to " + extension, "%.3f s" % b, "%.3f s" % m, "%.2f" % (b / m),
              "%.0f MB" % max(mb for _, mb in mine))
