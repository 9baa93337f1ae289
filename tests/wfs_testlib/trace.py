# SPDX-License-Identifier: MIT
"""What strace wrote to its log with the option -f."""
import collections
import re
import shutil

import pytest

from wfs_testlib.program import IS_INSTRUMENTED

NEEDS_STRACE = [pytest.mark.skipif(shutil.which('strace') is None, reason='needs strace'),
                pytest.mark.skipif(IS_INSTRUMENTED, reason='LeakSanitizer and valgrind do not work under strace')]
LINE = re.compile(r'^(\d+) +(?:[\d:.]+ +)?(\w+)\((.*)\) += (-?\d+|\?)')

Call = collections.namedtuple('Call', 'pid name arguments result')  # result: -1 for a call that failed, None for one that did not end


def calls(path):
    """Every call, in the order of their ends; one that was interrupted by another is put together."""
    pending, result = {}, []
    for line in path.read_text(errors='replace').splitlines():
        pid = line.split()[0]
        if line.endswith('<unfinished ...>'):
            pending[pid] = line[:-len('<unfinished ...>')]
            continue
        if ' resumed>' in line:
            line = pending.pop(pid) + line.split(' resumed>', 1)[1]
        match = LINE.match(line)
        if match:
            result.append(Call(int(match[1]), match[2], match[3], None if match[4] == '?' else int(match[4])))
    return result
