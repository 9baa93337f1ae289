# SPDX-License-Identifier: MIT
"""Programs that use torch, run by forks of one process that has imported it: a second of processor time for all of them, not for each."""
import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile

SERVER = """
import json, os, runpy, sys, traceback
import numpy, torch
for line in sys.stdin:
    words, places, variables = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for fd, place in enumerate(places, 1):
            os.dup2(os.open(place, os.O_WRONLY | os.O_TRUNC), fd)
        os.environ.update(variables)
        sys.argv, sys.path[0] = words, os.path.dirname(words[0])
        code = 0
        try:
            runpy.run_path(words[0], run_name='__main__')
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else end.code is not None
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@functools.cache
def server():
    process = subprocess.Popen([sys.executable, '-B', '-c', SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               cwd='/')
    atexit.register(process.wait)
    atexit.register(process.stdin.close)
    return process


def run(script, *words, **variables):
    """Standard output of `python SCRIPT WORDS`, which has to succeed; variables are those of the environment."""
    with tempfile.NamedTemporaryFile('r') as stdout, tempfile.NamedTemporaryFile('r') as stderr:
        process = server()
        process.stdin.write(json.dumps([[os.fspath(word) for word in (script, *words)], [stdout.name, stderr.name], variables]) + '\n')
        process.stdin.flush()
        code = process.stdout.readline().strip()
        assert code == '0', 'exit code %s of %s %s\n%s' % (code, script, words, stderr.read())
        return stdout.read()
