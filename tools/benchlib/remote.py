# SPDX-License-Identifier: MIT
"""Checkpoints behind a server, over a link with a delay and a rate: against curl, against a mount of rclone below, and against the library of
the Hub. Bytes and requests are those that the server counted."""
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from benchlib.link import SERVER, Link
from benchlib.make import MIB, many_tensors, write_safetensors
from benchlib.measure import has_module, run
from benchlib.views import write_shards

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))

from wfs_testlib import served  # noqa: E402

ROUND_TRIP, RATE = 0.02, 125e6
FAR = 0.1  # another round trip: what a job takes longer over it shows how many it waits for
N_SHARDS, N_IN_SHARDS = 100, (2000, 20000)
N_SCATTERED, N_READERS, N_SMALL = 1000, 16, 4096

# Files of so many bytes that are read whole, by so many threads; prints seconds.
READERS = """import concurrent.futures, os, sys, time
n_bytes = int(sys.argv[3])
def read(path):
    fd = os.open(path, os.O_RDONLY)
    assert len(os.pread(fd, n_bytes + 1, 0)) == n_bytes
    os.close(fd)
os.chdir(sys.argv[1])
paths = sys.stdin.read().split()
for path in paths:
    os.stat(path)
start = time.perf_counter()
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as pool:
    list(pool.map(read, paths))
print(time.perf_counter() - start)
"""

# What the library of the Hub offers for the headers of all shards; prints seconds.
HUB = """import sys, time, huggingface_hub
start = time.perf_counter()
found = huggingface_hub.get_safetensors_metadata('owner/' + sys.argv[1])
assert len(found.files_metadata) == int(sys.argv[2])
print(time.perf_counter() - start)
"""

# The folder of a URL as a directory of the Hub: enough for the library to take it for one.
HUB_PATHS = "autoindex on;"
HUB_FOLDER = """
location = /owner/%s/resolve/main/model.safetensors {
    add_header X-Error-Code EntryNotFound always;
    return 404;
}
location /owner/%s/resolve/main/ {
    alias "%s/%s/";
    add_header X-Repo-Commit 0123456789012345678901234567890123456789;
}
"""


class Place:
    """The server with its files, and a client that reaches it over the link."""

    def __init__(self, bench, link, server):
        self.bench, self.link, self.server = bench, link, server

    def run(self, *argv, **kwargs):
        return run([*self.link.client, *argv], **kwargs)

    def seconds(self, *argv, **kwargs):
        """What the command prints."""
        return float(subprocess.run([*self.link.client, *argv], check=True, capture_output=True, text=True, **kwargs).stdout)

    @contextlib.contextmanager
    def mounted(self, source, *options):
        """Seconds of the mount."""
        took = self.run(self.bench.program, source, self.bench.mnt, *(word for option in options for word in ("-o", option)))
        try:
            yield took
        finally:
            subprocess.run([self.bench.program, "umount", self.bench.mnt], check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def through_rclone(self, name):
        """The path of a file in a mount of rclone."""
        below = self.bench.path("rclone")
        os.makedirs(below, exist_ok=True)
        environment = dict(os.environ, RCLONE_CONFIG="", XDG_CACHE_HOME=self.bench.path("cache"))
        self.run("rclone", "mount", ":http:", below, "--http-url", self.server.url(), "--daemon", "--read-only", "--allow-other",
                 "--vfs-cache-mode", "full", stderr=subprocess.DEVNULL, env=environment)
        try:
            yield os.path.join(below, name)
        finally:
            subprocess.run(["fusermount3", "-uz", below], check=True)
            shutil.rmtree(environment["XDG_CACHE_HOME"], ignore_errors=True)  # the next run fetches everything again, as ours does

    def counted(self, job):
        """What the job returns, and the requests and bytes of the server for it."""
        self.server.forget()
        result = job()
        requests = self.server.requests()
        return result, len(requests), sum(request.n_sent for request in requests)


def _median(n_runs, job):
    """Medians of what the job returns in several runs: seconds, requests, bytes."""
    return [statistics.median(column) for column in zip(*(job() for _ in range(n_runs)))]


def _row(bench, name, found, baseline):
    took, n_requests, n_bytes = found
    bench.row(name, "%.3f s" % took, "%.2f" % (baseline / took), "%d" % n_requests, "%.1f MB" % (n_bytes / 1e6))


COLUMNS = ["job", "time", "baseline / time", "requests", "bytes on the wire"]


def _large_tensor(place, folder):
    bench, n = place.bench, (256 if place.bench.quick else 1024) * MIB
    path = os.path.join(folder, "large.safetensors")
    start = write_safetensors(path, [("a", "F32", [n // 4], n), ("b", "F32", [n // 4], n)], os.urandom(MIB))
    url, out = place.server.url(path), bench.path("out.bin")
    bench.section("One tensor of %d MiB behind a server, round trip %.0f ms, 1 Gbit/s" % (n // MIB, ROUND_TRIP * 1000), COLUMNS)

    def copy(source):
        def job():
            with place.mounted(source):
                return place.run("cp", os.path.join(bench.mnt, "b"), out)
        return job

    def through_rclone():
        with place.through_rclone("large.safetensors") as below:
            return copy(below)()

    jobs = [("curl -o, the same range", lambda: place.run("curl", "-sS", "-o", out, "-r", "%d-%d" % (start + n, start + 2 * n - 1), url)),
            ("cp of a mount of the URL", copy(url)),
            ("cat of the URL, with opening it", lambda: place.run("sh", "-c", 'exec "$0" cat "$1" b >"$2"', bench.program, url, out)),
            ("sum of the URL, with opening it", lambda: place.run(bench.program, "sum", "--include=^b$", url)),
            ("cp of a mount of a file in a mount of rclone", through_rclone)]
    n_runs = 1 if bench.quick else 3
    found = [[] for _ in jobs]
    for _ in range(n_runs):
        for i, (_, job) in enumerate(jobs):
            found[i].append(place.counted(job))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(out)
    medians = [_median(n_runs, iter(runs).__next__) for runs in found]
    for (name, _), figures in zip(jobs, medians):
        _row(bench, name, figures, medians[0][0])
    os.unlink(path)


def _folder_of_shards(n_tensors):
    return "shards%d" % n_tensors


def _shard_jobs(place, n_tensors):
    """[(name, job)] for a set of N_SHARDS shards."""
    bench, index = place.bench, _folder_of_shards(n_tensors) + "/model.safetensors.index.json"

    def mount(source):
        def job():
            with place.mounted(source) as took:
                return took
        return job

    def through_rclone():
        with place.through_rclone(index) as below:
            return mount(below)()

    def hub():
        try:
            return place.seconds(sys.executable, "-c", HUB, _folder_of_shards(n_tensors), str(N_SHARDS), env=dict(
                os.environ, HF_ENDPOINT=place.server.url().rstrip("/"), HF_HOME=bench.path("hub"), HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_XET="1"))
        finally:
            shutil.rmtree(bench.path("hub"), ignore_errors=True)

    jobs = [("mount of the URL of the index", mount(place.server.url(index))), ("mount of a set in a mount of rclone", through_rclone)]
    return jobs + [("huggingface_hub.get_safetensors_metadata", hub)] * has_module("huggingface_hub")


def _shards(place, folder, far):
    bench = place.bench
    for n_tensors in N_IN_SHARDS:
        size = os.path.getsize(os.path.join(folder, _folder_of_shards(n_tensors), "model.safetensors.index.json"))
        bench.section("The headers of %d shards with %d tensors; their index has %.1f MB" % (N_SHARDS, n_tensors, size / 1e6), [*COLUMNS, "round trips"])
        baseline = None
        for name, job in _shard_jobs(place, n_tensors):
            found = _median(1 if bench.quick else 5, lambda job=job: place.counted(job))
            baseline = baseline or found[0]
            bench.row(name, "%.3f s" % found[0], "%.2f" % (baseline / found[0]), "%d" % found[1], "%.1f MB" % (found[2] / 1e6),
                      "%.1f" % ((far[n_tensors, name] - found[0]) / (FAR - ROUND_TRIP)))


def _far_seconds(bench, folder):
    """Seconds of opening the sets over a link with a longer round trip."""
    with _place(bench, folder, FAR) as place:
        return {(n_tensors, name): _median(1 if bench.quick else 3, lambda job=job: place.counted(job))[0]
                for n_tensors in N_IN_SHARDS for name, job in _shard_jobs(place, n_tensors)}


def _scattered(place, folder):
    bench = place.bench
    path = os.path.join(folder, "scattered.safetensors")
    gap = 256 * 1024
    tensors = [pair for i in range(N_SCATTERED)
               for pair in (("t%04d" % i, "U8", [N_SMALL], N_SMALL), ("gap%04d" % i, "U8", [gap], gap))]
    start = write_safetensors(path, tensors)
    bench.section("%d tensors of %d bytes, %d KiB apart, read by %d readers" % (N_SCATTERED, N_SMALL, gap >> 10, N_READERS), COLUMNS)
    order = [i * 7919 % N_SCATTERED for i in range(N_SCATTERED)]
    names = "\n".join("t%04d" % i for i in order)
    url = place.server.url(path)

    def read(source):
        def job():
            with place.mounted(source):
                return place.seconds(sys.executable, "-c", READERS, bench.mnt, str(N_READERS), str(N_SMALL), input=names)
        return job

    def by_curl():
        """The floor of this link and of this machine."""
        ranges = [(start + i * (N_SMALL + gap), start + i * (N_SMALL + gap) + N_SMALL - 1) for i in order]
        with open(bench.path("curl"), "w") as file:
            file.write("\nnext\n".join("url=%s\nrange=%d-%d\noutput=/dev/null" % (url, *one) for one in ranges))
        return place.run("curl", "-sZ", "--parallel-max", str(N_READERS), "-K", bench.path("curl"), stderr=subprocess.DEVNULL)

    def through_rclone():
        with place.through_rclone("scattered.safetensors") as below:
            return read(below)()

    ideal = N_SCATTERED / N_READERS * ROUND_TRIP
    bench.row("%d / %d round trips" % (N_SCATTERED, N_READERS), "%.3f s" % ideal, "1.00", N_SCATTERED, "%.1f MB" % (N_SCATTERED * N_SMALL / 1e6))
    for name, job in (("curl, %d connections" % N_READERS, by_curl), ("mount of the URL", read(url)), ("mount of a file in a mount of rclone", through_rclone)):
        _row(bench, name, _median(1 if bench.quick else 3, lambda job=job: place.counted(job)), ideal)
    os.unlink(path)


def _sparse(place, folder):
    bench, n, n_bytes = place.bench, 100000, 100 * 10**9
    path = os.path.join(folder, "sparse.safetensors")
    each = n_bytes // n // 4 * 4
    start = write_safetensors(path, [(name, "F32", [each // 4], each) for name, _, _, _ in many_tensors(n, 10)])
    url = place.server.url(path)
    bench.section("A file of 100 GB with %d tensors; its header has %.1f MB" % (n, start / 1e6), COLUMNS)
    out = bench.path("header")
    n_runs = 1 if bench.quick else 3
    curl = _median(n_runs, lambda: place.counted(lambda: place.run("curl", "-sS", "-o", out, "-r", "0-%d" % (start - 1), url)))
    _row(bench, "curl -o of the header", curl, curl[0])
    _row(bench, "ls of the URL", _median(n_runs, lambda: place.counted(lambda: place.run(bench.program, "ls", url))), curl[0])

    def list_rclone():
        with place.through_rclone("sparse.safetensors") as below:
            return place.run(bench.program, "ls", below)

    _row(bench, "ls of a file in a mount of rclone", _median(n_runs, lambda: place.counted(list_rclone)), curl[0])

    def walk():
        with place.mounted(url) as took:
            return took + place.run("ls", "-lR", bench.mnt)

    _row(bench, "mount of the URL and ls -lR", _median(n_runs, lambda: place.counted(walk)), curl[0])
    os.unlink(path)


@contextlib.contextmanager
def _place(bench, folder, round_trip):
    with Link(round_trip, RATE) as link, served.Nginx(folder, HUB_PATHS + "".join(HUB_FOLDER % (name, name, folder, name) for name in map(
            _folder_of_shards, N_IN_SHARDS)), SERVER, link.server) as server:
        yield Place(bench, link, server)


def remote(bench):
    folder = bench.path("served")
    os.makedirs(folder)
    for n_tensors in N_IN_SHARDS:
        write_shards(os.path.join(folder, _folder_of_shards(n_tensors)), many_tensors(n_tensors, 10), N_SHARDS)
    far = _far_seconds(bench, folder)
    with _place(bench, folder, ROUND_TRIP) as place:
        _large_tensor(place, folder)
        _shards(place, folder, far)
        _scattered(place, folder)
        _sparse(place, folder)
    shutil.rmtree(folder)
