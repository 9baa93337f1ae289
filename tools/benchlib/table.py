# SPDX-License-Identifier: MIT
"""The tables in the documentation: one section each, with its own date, so that sections can be measured separately."""
import os
import platform
import re
import subprocess
import time

BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"
MARK = re.compile(r"^<!-- section: (\w+) -->\n", re.M)


def section_text(bench):
    lines = []
    for title, columns, rows in bench.sections:
        lines += ["### " + title, "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows] + [""]
    version = subprocess.run([bench.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    lines += ["%s%s: %d processors, Linux %s, %s." % (time.strftime("%Y-%m-%d"), ", `--quick`" if bench.quick else "", os.cpu_count(),
                                                   platform.release(), version.replace("\n", ", ")), ""]
    return "\n".join(lines)


def write_sections(path, texts, order):
    """Replaces the sections that are in texts; those of `order` that are not stay as they are."""
    with open(path) as file:
        head, rest = file.read().split(BEGIN)
    old, tail = rest.split(END)
    parts = MARK.split(old)[1:]
    known = {name: text.strip() + "\n" for name, text in zip(parts[::2], parts[1::2])}
    known.update(texts)
    body = "".join("\n<!-- section: %s -->\n%s" % (name, known[name]) for name in order if name in known)
    with open(path, "w") as file:
        file.write(head + BEGIN + body + "\n" + END + tail)
