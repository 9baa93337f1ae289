# SPDX-License-Identifier: MIT
"""Reading, listing and mounting."""
import contextlib
import os
import shutil
import statistics
import subprocess
import sys

from benchlib.make import MIB, many_tensors, write_safetensors
from benchlib.measure import drop_caches, run


def reads(bench):
    bench.section("Sequential reads of a 64 MiB tensor", ["job", "plain file", "mount", "ratio"])
    source, plain = bench.path("read.safetensors"), bench.path("plain.bin")
    n = 64 * MIB
    pattern = os.urandom(MIB)
    start = write_safetensors(source, [("a", "F32", [n // 4], n), ("b", "F32", [n // 4], n)], pattern)
    with open(source, "rb") as file, open(plain, "wb") as out:
        file.seek(start + n)
        out.write(file.read(n))
    mounted = os.path.join(bench.mnt, "b")

    def fresh(job):
        """Our side in a mount of its own: the kernel has cached nothing of it."""
        def timed():
            with bench.mounted(source):
                return job(mounted)
        return timed

    dd_range = lambda: run(["dd", "if=" + source, "of=/dev/null", "bs=1M", "iflag=skip_bytes,count_bytes",
                            "skip=%d" % (start + n), "count=%d" % n, "status=none"])
    jobs = [
        ("dd bs=1M", lambda p: run(["dd", "if=" + p, "of=/dev/null", "bs=1M", "status=none"]), dd_range),
        ("dd bs=4k", lambda p: run(["dd", "if=" + p, "of=/dev/null", "bs=4k", "status=none"]), None),
        ("cp to the same filesystem", lambda p: run(["cp", "--reflink=never", p, bench.path("copy.bin")]), None),
        ("rsync to the same filesystem", lambda p: run(["rsync", "--whole-file", p, bench.path("rsynced.bin")]), None),
        ("sha256sum", lambda p: run(["sha256sum", p]), None),
    ]

    def clear():
        for name in ("copy.bin", "rsynced.bin"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(bench.path(name))

    for name, job, baseline in jobs:
        base = baseline or (lambda: job(plain))
        run(["cat", source, plain])
        bench.compare(name + ", first read, source cached", base, fresh(job), clear)
        with bench.mounted(source):
            job(mounted)
            bench.compare(name + ", second read", base, lambda: job(mounted), clear)
    if os.geteuid() == 0:
        with bench.mounted(source):
            bench.compare("dd bs=1M, source cold", dd_range, lambda: jobs[0][1](mounted), drop_caches)
    os.unlink(plain)
    os.unlink(source)


def listings(bench):
    n, per_dir = (20000, 10) if bench.quick else (100000, 10)
    bench.section("Listings of %d tensors in %d directories, against the same tree on this filesystem" % (n, n // per_dir),
                 ["job", "plain tree", "mount", "ratio"])
    source, tree = bench.path("many.safetensors"), bench.path("tree")
    write_safetensors(source, many_tensors(n, per_dir))
    with bench.mounted(source):
        attrs = {}
        for top, _, names in os.walk(bench.mnt):
            there = os.path.join(tree, os.path.relpath(top, bench.mnt))
            os.makedirs(there, exist_ok=True)
            for name in names:
                path = os.path.join(there, name)
                with open(path, "wb") as file:
                    file.write(b"\0\0\0\0")
                if not attrs:
                    one = os.path.join(top, name)
                    attrs = {a: os.getxattr(one, a) for a in os.listxattr(one)}
                for attr, value in attrs.items():
                    os.setxattr(path, attr, value)
    for name, argv in (("ls -lR", ["ls", "-lR"]), ("find", ["find"]), ("getfattr -R -d", ["getfattr", "-R", "-d"])):
        def fresh():
            with bench.mounted(source):
                return run(argv + ["."], cwd=bench.mnt)
        prepare = drop_caches if os.geteuid() == 0 else lambda: None
        bench.compare(name + ", first, cold" if os.geteuid() == 0 else name + ", first",
                     lambda: run(argv + ["."], cwd=tree), fresh, prepare)
        with bench.mounted(source):
            run(argv + ["."], cwd=bench.mnt)
            bench.compare(name + ", second", lambda: run(argv + ["."], cwd=tree), lambda: run(argv + ["."], cwd=bench.mnt))
    shutil.rmtree(tree)
    os.unlink(source)


def mounts(bench):
    bench.section("Mount time and memory", ["tensors", "directories", "mount", "resident", "peak", "Python's json of the header", "`find | wc -l`"])
    for n, per_dir in ((20000, 10),) if bench.quick else ((100000, 10), (500000, 10)):
        source = bench.path("mount.safetensors")
        start = write_safetensors(source, many_tensors(n, per_dir))
        code = "import json,sys; f=open(sys.argv[1],'rb'); f.seek(8); json.loads(f.read(int(sys.argv[2])))"
        seconds, parse = [], []
        for _ in range(bench.n_runs):
            parse.append(run([sys.executable, "-c", code, source, str(start - 8)]))
            with bench.mounted(source) as s:
                seconds.append(s)
        with bench.mounted(source):
            resident, peak = bench.memory()
            found = subprocess.run("find . | wc -l", shell=True, cwd=bench.mnt, check=True, capture_output=True, text=True).stdout.strip()
        bench.row(n, n // per_dir, "%.2f s" % statistics.median(seconds), "%.0f MB" % resident, "%.0f MB" % peak,
                 "%.2f s" % statistics.median(parse), found)
        os.unlink(source)
