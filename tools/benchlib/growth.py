# SPDX-License-Identifier: MIT
"""How processor time grows: every verb on an input of n and of 4n tensors, shards, chunks, edits, texts and so on. A ratio over 5 is marked:
what takes 16 times as long is quadratic, and somebody's file is large enough for that."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))
from wfs_testlib import dcp, pth, st  # noqa: E402

MOST, FACTOR, PATIENCE = 5, 4, 120


class Place:
    """A folder with the inputs of one size, and the commands that are measured on them."""

    def __init__(self, bench, name, n):
        self.program, self.n, self.commands = bench.program, n, []
        self.folder = bench.path("%s-%d" % (name, n))
        os.makedirs(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, *argv, code=0):
        """Prepares an input with the program itself."""
        done = subprocess.run([self.program, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == code, (argv[:6], done.stderr[:300])
        return done.stdout

    def measure(self, name, *argv, codes=(0,)):
        self.commands.append((name, argv, codes))


def keys(n):
    return ["model.layers.%d.m%d.weight" % (i // 8, i % 8) for i in range(n)]


def write_tensors(path, n, start=0, metadata=None):
    data = b"".join(st.f32(i + start, 1) for i in range(n))
    entries = {key: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]} for i, key in enumerate(keys(n))}
    head = json.dumps({**({"__metadata__": metadata} if metadata else {}), **entries}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + data)


# ---- dimensions ----

def tensors(place):
    a, b = place.path("a.safetensors"), place.path("b.safetensors")
    write_tensors(a, place.n)
    write_tensors(b, place.n, 1)
    last = keys(place.n)[-1]
    for words in (["ls"], ["ls", "--tree"], ["ls", "--long"], ["ls", "--json"], ["ls", "--sort=size"], ["info"], ["info", "--json"], ["check"],
                  ["check", "--values"], ["sum"], ["plan"], ["plan", "--report"], ["plan", "--json", r"--remap=s/^model\.//"], ["plan", "--to=burn"],
                  ["plan", "--contiguous=on"], ["plan", "--on_collision=suffix", r"--remap=s/\.m\d+\././"], ["config"]):
        place.measure(" ".join(words), *words, a)
    place.measure("find", "find", a, "layers.1.")
    place.measure("show", "show", a, last)
    place.measure("cat", "cat", a, last)
    place.measure("plan --like", "plan", "--like=" + b, a)
    place.measure("plan --overlay", "plan", "--overlay=" + b, a)
    manifest = place.path("sums")
    with open(manifest, "w") as file:
        file.write(place.make("sum", a))
    place.measure("sum --check", "sum", "--check=" + manifest, a)
    for words in (["diff"], ["diff", "--stat"], ["diff", "--long"], ["diff", "--all", "--json"]):
        place.measure(" ".join(words), *words, a, b, codes=(1,))
    for verb in ("report", "map"):
        place.measure(verb, verb, "--overwrite", "-o", place.path(verb), a, b)
    place.measure("extract", "extract", "--overwrite", "-d", place.path("out"), a)
    for ending in ("safetensors", "pth", "bpk", "mpk"):
        place.measure("convert to ." + ending, "convert", "--overwrite", a, place.path("c." + ending))
    place.measure("convert to dcp", "convert", "--overwrite", "--format=dcp", a, place.path("c-dcp"))
    for ending in ("pth", "bpk", "mpk"):
        place.make("convert", a, place.path("d." + ending))
    place.make("convert", "--format=dcp", a, place.path("d-dcp"))
    for source in ("d.pth", "d.bpk", "d.mpk", "d-dcp"):
        for words in (["ls"], ["info"], ["check"], ["sum"], ["config"], ["convert", "--overwrite"]):
            target = [place.path("e.safetensors")] if words[0] == "convert" else []
            place.measure("%s %s" % (" ".join(words), source.replace("d.", ".").replace("d-", "")), *words, place.path(source), *target)
        place.measure("edit " + source.replace("d.", ".").replace("d-", ""), "edit", "--overwrite", "--remove=" + last,
                      *(["--format=dcp"] if source == "d-dcp" else []), place.path(source), place.path("f-dcp" if source == "d-dcp" else "f" + source[1:]))
    patch = place.path("a.wfpatch")
    place.measure("patch make", "patch", "--overwrite", "make", a, b, patch)
    place.make("patch", "make", a, b, place.path("b.wfpatch"))
    place.measure("patch show", "patch", "show", place.path("b.wfpatch"))
    place.measure("patch apply", "patch", "--overwrite", "apply", place.path("b.wfpatch"), a, place.path("g.safetensors"))


def shards(place):
    whole, folder = place.path("a.safetensors"), place.path("set") + "/"
    write_tensors(whole, place.n)
    place.make("convert", "--format=safetensors", "--max-shard-size=8B", whole, folder)
    for words in (["ls"], ["info"], ["check"], ["sum"]):
        place.measure(" ".join(words), *words, folder)
    place.measure("ls --shards", "ls", "--shards", next(os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith("model-0")))
    place.measure("convert to a file", "convert", "--overwrite", folder, place.path("b.safetensors"))
    place.measure("convert to a set", "convert", "--overwrite", "--format=safetensors", "--max-shard-size=8B", whole, place.path("other") + "/")
    place.measure("edit in place", "edit", "--overwrite", "--set-metadata=x=1", folder, folder)


def many_files(place):
    """A folder with as many files that are no part of the checkpoint."""
    write_tensors(place.path("model.safetensors"), 4)
    for i in range(place.n):
        with open(place.path("state%d.json" % i), "w"):
            pass
    place.measure("ls of a folder with files", "ls", place.folder)
    os.makedirs(place.path("sub"))
    for i in range(place.n):
        shutil.copyfile(place.path("model.safetensors"), place.path("sub/epoch%d.safetensors" % i))
    place.measure("ls of a folder with checkpoints", "ls", place.path("sub"), codes=(2,))


def chunks(place):
    import numpy
    writer = dcp.Writer(pathlib.Path(place.path("d")))
    writer.tensor("w", "F32", numpy.zeros((place.n, 2), "<f4"), [((i, 0), (1, 2)) for i in range(place.n)])
    folder = writer.write()
    for words in (["ls"], ["check"], ["sum"]):
        place.measure(" ".join(words), *words, folder)
    place.measure("ls --limit=items=1", "ls", "--limit=items=1", folder)
    place.measure("convert", "convert", "--overwrite", folder, place.path("b.safetensors"))


def metadata(place):
    texts = {"key%d" % i: "text %d" % i for i in range(place.n)}
    a = place.path("a.safetensors")
    write_tensors(a, 10, metadata=texts)
    for words in (["ls"], ["info"], ["info", "--json"], ["check"], ["plan", "--json"]):
        place.measure(" ".join(words), *words, a, codes=(0, 1))
    for ending in ("safetensors", "pth", "bpk"):
        place.measure("convert to ." + ending, "convert", "--overwrite", a, place.path("c." + ending))
    place.measure("edit", "edit", "--overwrite", "--set-metadata=key1=other", a, place.path("d.safetensors"))
    write_tensors(place.path("b.safetensors"), 10, metadata={key: value + "!" for key, value in texts.items()})
    place.measure("diff --all", "diff", "--all", a, place.path("b.safetensors"), codes=(1,))
    place.measure("patch make", "patch", "--overwrite", "make", a, place.path("b.safetensors"), place.path("p"))


def values(place):
    a = place.path("a.pth")
    items = [(pth.text("v%d" % i), pth.dictionary(x=pth.number(i % 200), w=pth.tensor())) for i in range(place.n)]
    with open(a, "wb") as file:
        file.write(pth.checkpoint(pth.pairs(*items)))
    for words in (["ls"], ["info"], ["config"], ["check"], ["sum"]):
        place.measure(" ".join(words), *words, a)
    place.measure("config KEY", "config", a, "v%d.x" % (place.n - 1))
    for words in (["--values=drop"], ["--values=metadata"]):
        place.measure("convert %s to .safetensors" % words[0], "convert", "--overwrite", *words, a, place.path("b.safetensors"))
    place.measure("convert to .pth", "convert", "--overwrite", a, place.path("c.pth"))
    place.measure("convert to dcp", "convert", "--overwrite", "--format=dcp", a, place.path("c-dcp"))
    place.measure("edit", "edit", "--overwrite", "--set-value=v1.x=7", a, place.path("d.pth"))
    place.measure("edit --rename", "edit", "--overwrite", "--rename", "v1", "w1", a, place.path("d.pth"))


def edits(place):
    """Of every second tensor, so that a search for each of them in all is seen."""
    a, n = place.path("a.safetensors"), place.n
    write_tensors(a, 2 * n)
    names = keys(2 * n)[::2]
    target = place.path("b.safetensors")
    for name, options in {
            "--remove": ["--remove=" + key for key in names], "--set dtype": ["--set=%s.dtype=I32" % key for key in names],
            "--set-metadata": ["--set-metadata=k%d=x" % i for i in range(n)],
            "--set-value": ["--set-value=k%d=1" % i for i in range(n)]}.items():
        is_pth = name == "--set-value"
        place.measure("edit " + name, "edit", "--overwrite", *options, a, place.path("b.pth") if is_pth else target)
    write_tensors(place.path("c.safetensors"), 2 * n)
    with open(place.path("c.safetensors"), "r+b") as file:
        file.seek(-8 * n, os.SEEK_END)
        file.write(b"\1" * 8 * n)
    place.make("patch", "make", a, place.path("c.safetensors"), place.path("p"))
    place.measure("patch show", "patch", "show", place.path("p"))
    place.measure("patch apply", "patch", "--overwrite", "apply", place.path("p"), a, target)


N_OPTIONS = 400


def options(place):
    """Of one file: a pattern is tried on each key."""
    a, n = place.path("a.safetensors"), place.n
    write_tensors(a, FACTOR * N_OPTIONS)
    names = keys(n)
    escaped = [name.replace(".", r"\.") for name in names]
    for name, words in {
            "--remap": [r"--remap=s/^%s$/y%d/" % (key, i) for i, key in enumerate(escaped)], "--include": ["--include=^%s$" % key for key in escaped],
            "--exclude": ["--exclude=^%s$" % key for key in escaped[1:]] + ["--exclude=^none$"], "--key": ["--key=" + key for key in names],
            "--class": ["--class=^%s$:Linear" % key for key in escaped], "--cast": ["--cast=^%s$:F16" % key for key in escaped],
            "--keep": ["--cast=F16"] + ["--keep=^%s$" % key for key in escaped], "--contiguous_except": ["--contiguous_except=^%s$" % key for key in escaped],
            "--rename": [word for i, key in enumerate(names) for word in ("--rename", key, "z%d" % i)]}.items():
        place.measure("plan " + name, "plan", *words, a)
    rules = place.path("rules.json")
    with open(rules, "w") as file:
        json.dump([{"remap": "s/^%s$/y%d/" % (key, i)} for i, key in enumerate(escaped)], file)
    place.measure("plan --rules", "plan", "--rules=" + rules, a)
    place.measure("ls GLOB", "ls", a, *names)
    place.measure("show KEY", "show", a, *names)


def overlays(place):
    a = place.path("a.safetensors")
    write_tensors(a, 400)
    for i in range(place.n):
        shutil.copyfile(a, place.path("o%d.safetensors" % i))
    place.measure("plan --overlay", "plan", *("--overlay=" + place.path("o%d.safetensors" % i) for i in range(place.n)), a)
    place.measure("sum of several", "sum", *(place.path("o%d.safetensors" % i) for i in range(place.n)))


# ---- mounts ----

class Mount(Place):
    """A mount in the foreground, whose processor time is known when it ends."""

    def __init__(self, bench, name, n):
        super().__init__(bench, name, n)
        self.mnt = self.path("mnt")
        os.makedirs(self.mnt)
        write_tensors(self.path("a.safetensors"), n)

    def run(self, work):
        with subprocess.Popen([self.program, self.path("a.safetensors"), self.mnt, "-f", "-o", "overwrite,output=" + self.path("b.safetensors")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while not os.path.ismount(self.mnt):
                assert driver.poll() is None
            try:
                work(self)
            finally:
                subprocess.run([self.program, "umount", self.mnt], stdout=subprocess.DEVNULL, check=False)
            _, _, usage = os.wait4(driver.pid, 0)
            driver.returncode = 0
        return usage.ru_utime + usage.ru_stime

    def files(self):
        return [os.path.join(folder, name) for folder, _, names in os.walk(self.mnt) for name in names]


def each(action):
    def work(mount):
        for file in mount.files():
            action(file)
    return work


def commit(work):
    def both(mount):
        work(mount)
        mount.make("commit", mount.mnt)
    return both


def then(work, *words, code=0):
    def both(mount):
        work(mount)
        mount.make(*(word.format(mnt=mount.mnt, patch=mount.path("p")) for word in words), code=code)
    return both


def write(file):
    with open(file, "r+b") as opened:
        opened.write(b"\1\2\3\4")


def read(file):
    with open(file, "rb") as opened:
        opened.read()


MOVE = each(lambda file: os.rename(file, file + "x"))
WRITE = each(write)
MOUNTS = {
    "walk": each(os.stat), "read": each(read), "getfattr": each(lambda file: os.getxattr(file, "user.weightfs.shape")),
    "mv, commit": commit(MOVE), "rm, commit": commit(lambda mount: [os.unlink(file) for file in mount.files()[1:]]), "write, commit": commit(WRITE),
    "ln, commit": commit(each(lambda file: os.link(file, file + "x"))), "setfattr, commit": commit(each(lambda file: os.setxattr(file, "user.weightfs.dtype", b"I32"))),
    "mkdir of each": each(lambda file: os.mkdir(file + "d")), "write, status --edits": then(WRITE, "status", "--edits", "{mnt}"),
    "write, diff": then(WRITE, "diff", "{mnt}", code=1), "write, discard": then(WRITE, "discard", "{mnt}"), "write, patch make": then(WRITE, "patch", "--overwrite", "make", "{mnt}", "{patch}"),
    "read of tensors.csv": lambda mount: read(os.path.join(mount.mnt, ".weightfs/tensors.csv")),
    "read of report.json": lambda mount: read(os.path.join(mount.mnt, ".weightfs/report.json")),
    "read of out/model.pth": lambda mount: read(os.path.join(mount.mnt, ".weightfs/out/model.pth")),
}

# What grows, and from which size on.
DIMENSIONS = [("tensors", tensors, 4000), ("shards", shards, 400), ("files in a folder", many_files, 3000), ("chunks of one tensor", chunks, 4000),
              ("metadata texts", metadata, 8000), ("values", values, 3000), ("edits", edits, 1500), ("options", options, N_OPTIONS), ("overlays", overlays, 50)]
N_MOUNTED = 1500


# ---- measuring ----

def seconds_of(program, argv, codes):
    """Processor seconds of a command; None: it did something else than it should."""
    pid = os.posix_spawn(program, [program, *argv], os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)])
    _, status, usage = os.wait4(pid, 0)
    return usage.ru_utime + usage.ru_stime if os.waitstatus_to_exitcode(status) in codes else None


def compare(bench, what, name, small, large):
    """A row. A ratio that is too large is measured again: other programs disturb it."""
    best = [small(), large()]
    for _ in range(3):
        if None in best or best[1] <= MOST * best[0]:
            break
        best = [min(best[0], small()), min(best[1], large())]
    if None in best:
        bench.row(what, name, "-", "-", "failed")
        return
    ratio = best[1] / best[0]
    bench.row(what, name, "%.3f s" % best[0], "%.3f s" % best[1], "%.1f%s" % (ratio, "" if ratio <= MOST else " !"))


def growth(bench):
    bench.section("Processor time for four times the input", ["what grows", "command", "n", "4n", "ratio"])
    for what, make, n in DIMENSIONS:
        places = [Place(bench, make.__name__, size) for size in (n, FACTOR * n)]
        for place in places:
            make(place)
        for (name, argv, codes), (_, more, _) in zip(places[0].commands, places[1].commands):
            compare(bench, "%s, %d" % (what, n), name, lambda a=argv, c=codes: seconds_of(bench.program, a, c), lambda a=more, c=codes: seconds_of(bench.program, a, c))
        for place in places:
            shutil.rmtree(place.folder)
    mounts = [Mount(bench, "mounted", size) for size in (N_MOUNTED, FACTOR * N_MOUNTED)]
    for name, work in MOUNTS.items():
        compare(bench, "tensors in a mount, %d" % N_MOUNTED, name, lambda w=work: mounts[0].run(w), lambda w=work: mounts[1].run(w))
