# SPDX-License-Identifier: MIT
"""What the sections need besides the program and Python."""
import importlib.util
import os
import shutil

# Section: the programs and Python modules that it uses.
NEEDS = {"reads": ["rsync"], "listings": ["getfattr"], "views": ["numpy"], "growth": ["numpy"], "gguf": ["gguf", "time"], "python": ["numpy"], "remote": ["curl", "ip", "nginx", "openssl"],
         **dict.fromkeys(("opens", "conversions", "largemodel", "everyday", "distributed", "peers"), ["time"])}
# Without these some rows are empty.
OPTIONAL = {"views": ["torch"], "opens": ["torch"], "reflinks": ["mkfs.xfs"], "remote": ["rclone", "huggingface_hub"],
            "everyday": ["torch", "safetensors"], "python": ["torch", "safetensors"]}
PACKAGES = {"rsync": "rsync", "getfattr": "attr", "numpy": "python3-numpy", "torch": "python3-torch", "mkfs.xfs": "xfsprogs",
            "fusermount3": "fuse3", "curl": "curl", "ip": "iproute2", "nginx": "nginx", "openssl": "openssl", "rclone": "rclone",
            "time": "time",
            "huggingface_hub": "huggingface_hub (from PyPI)", "safetensors": "safetensors (from PyPI)", "gguf": "gguf (from PyPI)"}
MODULES = {"numpy", "torch", "gguf", "huggingface_hub", "safetensors"}
# GiB that the largest section writes, and with --quick.
ROOM = {False: 12, True: 4}
NO_MOUNT = {"opens", "conversions", "everyday", "python"}


def is_missing(name):
    return importlib.util.find_spec(name) is None if name in MODULES else shutil.which(name) is None


def missing_packages(sections, needs):
    return sorted({PACKAGES[name] for section in sections for name in needs.get(section, []) if is_missing(name)})


def problem(program, sections, build, is_quick):
    """One line about what is missing, or None."""
    if not os.path.exists(program):
        return "no program at %s: build it first with: meson setup build && ninja -C build" % program
    room, needed = shutil.disk_usage(build).free >> 30, ROOM[is_quick]
    if room < needed:
        return "%d GiB are free in %s, and up to %d GiB are needed%s" % (room, build, needed, "" if is_quick else " (with --quick, %d GiB)" % ROOM[True])
    needs = dict(NEEDS)
    if not NO_MOUNT.issuperset(sections):
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return "cannot mount: /dev/fuse is missing or not accessible (only %s work without it)" % ", ".join(sorted(NO_MOUNT))
        if os.geteuid() != 0:
            needs["mount"] = ["fusermount3"]
    if "remote" in sections and os.geteuid() != 0:
        return "the section remote makes network namespaces: run it as root"
    packages = missing_packages([*sections, "mount"], needs)
    return "missing packages; run as root: apt-get install %s" % " ".join(packages) if packages else None


def note(sections):
    """One line about rows that stay empty, or None."""
    packages = missing_packages(sections, OPTIONAL)
    if "reflinks" in sections and os.geteuid() != 0:
        packages.append("the rights of root")
    return "some rows stay empty without %s" % ", ".join(packages) if packages else None
