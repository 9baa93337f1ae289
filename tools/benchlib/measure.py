# SPDX-License-Identifier: MIT
"""Running and timing, and the rows of the results."""
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time


def run(argv, **kwargs):
    """Wall seconds of a command that must succeed."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, **kwargs)
    return time.perf_counter() - start


# time(1) measures memory, because a child's peak begins with what its parent had when it was made, and Python has more than weightfs.
MEASURE = """import os, sys, time
argv = ["time", "-f", "%M", "-o", sys.argv[1], *sys.argv[2:]]
start = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp("time", argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]), 0)
print(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_measured(argv):
    """Wall seconds and peak memory in MB of a command that must succeed."""
    return run_accounted(argv)[:2]


def run_accounted(argv):
    """The same, and the seconds of processor time."""
    with tempfile.NamedTemporaryFile("r") as peak:
        out = subprocess.run([sys.executable, "-S", "-E", "-c", MEASURE, peak.name, *argv], check=True, capture_output=True, text=True).stdout
        seconds, processor = map(float, out.split())
        return seconds, int(peak.read()) / 1024, processor


def python_seconds(code, *args):
    """What a script prints: its own measure, without the start of Python."""
    out = subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True, text=True).stdout
    return float(out)


def has_module(name):
    return subprocess.run([sys.executable, "-c", "import " + name], capture_output=True, check=False).returncode == 0


def has_torch():
    return has_module("torch")


def drop_caches():
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def find_program(build):
    """Path of the program in a build directory, or where it is expected."""
    direct = os.path.abspath(os.path.join(build, "weightfs"))
    return direct if os.path.exists(direct) else os.path.abspath(os.path.join(build, "src", "weightfs"))


class Bench:
    def __init__(self, program, scratch, quick):
        self.program, self.scratch, self.quick = program, scratch, quick
        self.n_runs = 3 if quick else 7
        self.sections = []
        self.mnt = os.path.join(scratch, "mnt")
        os.makedirs(self.mnt, exist_ok=True)

    def section(self, title, columns):
        self.sections.append((title, columns, []))
        print("\n" + title, file=sys.stderr)

    def row(self, *cells):
        self.sections[-1][2].append([str(cell) for cell in cells])
        print("  " + " | ".join(str(cell) for cell in cells), file=sys.stderr, flush=True)

    def path(self, name):
        return os.path.join(self.scratch, name)

    @contextlib.contextmanager
    def mounted(self, source, *options):
        argv = [self.program, source, self.mnt] + [x for o in options for x in ("-o", o)]
        start = time.perf_counter()
        subprocess.run(argv, check=True)
        seconds = time.perf_counter() - start
        try:
            yield seconds
        finally:
            subprocess.run([self.program, "umount", self.mnt], check=True, stdout=subprocess.DEVNULL)

    def compare(self, name, baseline, ours, prepare=lambda: None):
        """Alternating runs; one row: medians and ratio."""
        base, mine = [], []
        for _ in range(self.n_runs):
            prepare()
            base.append(baseline())
            prepare()
            mine.append(ours())
        b, m = statistics.median(base), statistics.median(mine)
        self.row(name, "%.3f s" % b, "%.3f s" % m, "%.2f" % (b / m))
        return b / m

    def worker(self):
        """Process id of the process that serves the mount."""
        text = subprocess.run([self.program, "status", "--json", self.mnt], check=True, capture_output=True, text=True).stdout
        pid = json.loads(text)["pid"]
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            children = file.read().split()
        return int(children[0]) if children else pid

    def memory(self):
        with open("/proc/%d/status" % self.worker()) as file:
            status = file.read()
        return tuple(int(re.search(r"%s:\s+(\d+)" % key, status).group(1)) / 1024 for key in ("VmRSS", "VmHWM"))
