# SPDX-License-Identifier: MIT
"""What `sum` prints of a checkpoint is what sha256sum prints of the files of its mount."""
from wfs_testlib.program import SAMPLE, tool, weightfs


def test_sha256sum_of_a_mount_prints_the_same(mount):
    one = mount(SAMPLE, 'layout=flat')
    lines = [line.split('\t') for line in weightfs('sum', SAMPLE).stdout.splitlines()[1:]]
    assert lines and tool('sha256sum', *[line[4] for line in lines], cwd=one.path).stdout == ''.join('%s  %s\n' % (line[0], line[4]) for line in lines)
