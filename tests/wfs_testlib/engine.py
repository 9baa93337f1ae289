# SPDX-License-Identifier: MIT
"""Drives the HTTP engine by itself (tests/tools/fetch.c), without caches and processes around it."""
import collections
import os
import subprocess

from .program import BUILD, PATIENCE, WRAP

PROGRAM = BUILD / 'tests' / 'tools' / 'fetch'
WHY_NOT = None if PROGRAM.exists() else 'built without libcurl'
SECRETS = ('hunter2', 'sig=tok3n', 'hf_s3cret', 'aws5ecret', 's3ssion')
# What of the environment would lead elsewhere.
CLEAN = {key: value for key, value in os.environ.items()
         if not key.lower().endswith('_proxy') and not key.startswith(('AWS_', 'HF_', 'HUGGING_FACE_', 'TRANSFORMERS_', 'SSL_', 'CURL_', 'XDG_'))}

# opened: "NAME: N, KIND[, weak][, whole]" with "URL" for the name of one, None: not at all; failures: (code, text) of each.
Fetched = collections.namedtuple('Fetched', 'data opened failures stderr')


def fetch(name, *words, head=1000, retries=2, timeout=20, env=None, home='/nonexistent', patience=PATIENCE):
    """Opens an object and fetches its head, or ranges: "OFFSET+N"."""
    done = subprocess.run([*WRAP, PROGRAM, str(retries), str(timeout), str(head), name, *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=patience, check=False,
                          env={**CLEAN, 'HOME': str(home), **(env or {})})
    return result(done.returncode, done.stdout, done.stderr.decode())


def result(code, data, stderr):
    assert not any(secret in stderr for secret in SECRETS), stderr
    opened, failures = None, []
    for line in stderr.splitlines():
        assert line.isprintable()
        if line.startswith('opened '):
            assert opened is None
            opened = line.removeprefix('opened ')
        else:
            word, name, text = line.split(': ', 2)
            assert word == 'failed', stderr
            failures.append((name, text))
    assert code == (1 if failures else 0), stderr
    return Fetched(data, opened, failures, stderr)
