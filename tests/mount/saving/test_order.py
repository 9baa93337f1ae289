# SPDX-License-Identifier: MIT
"""The order of system calls in a commit is part of the promise: nothing is renamed before it is on disk."""
import shutil

import pytest

from wfs_testlib import st, trace as traces
from wfs_testlib.program import IS_INSTRUMENTED

def position(trace, what, after=-1):
    """Index of the first call after another for which `what` is true."""
    for i, (name, arguments) in enumerate(trace):
        if i > after and what(name, arguments):
            return i
    raise AssertionError('not found in:\n' + '\n'.join('%s(%s)' % call for call in trace))


@pytest.mark.root  # strace takes from fusermount3 the rights that it has for others
@pytest.mark.skipif(shutil.which('strace') is None, reason='needs strace')
@pytest.mark.skipif(IS_INSTRUMENTED, reason='LeakSanitizer and valgrind do not work under strace')
def test_everything_is_on_disk_before_it_is_renamed(mount, folder, sample):
    log = folder / 'trace'
    out = folder / 'out.safetensors'
    names = 'openat,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,copy_file_range,pwrite64'
    mnt = mount(sample, 'output=%s' % out, wrap=('strace', '-f', '-y', '-o', log, '-e', 'trace=' + names))
    with open(mnt / 'temperature', 'r+b') as file:
        file.write(b'abcd')
    mnt.commit()
    mnt.unmount()
    assert st.read(out).tensors['temperature'][2] == b'abcd'
    trace = [call[1:3] for call in traces.calls(log) if call.result is not None and call.result >= 0]
    folder_name = str(folder.resolve())
    temporary = '.out.safetensors.weightfs.tmp'
    edit = position(trace, lambda name, text: name in ('fsync', 'fdatasync') and '.out.safetensors.weightfs/data/' in text)
    create = position(trace, lambda name, text: name == 'openat' and temporary in text and 'O_CREAT' in text and 'O_EXCL' in text, edit)
    copied = position(trace, lambda name, text: name in ('copy_file_range', 'pwrite64') and temporary in text, create)
    synced = position(trace, lambda name, text: name == 'fsync' and temporary in text, copied)
    last_write = max(i for i, (name, text) in enumerate(trace) if name in ('copy_file_range', 'pwrite64') and temporary in text.split(',')[0]
                     or name == 'copy_file_range' and temporary in text)
    renamed = position(trace, lambda name, text: name.startswith('rename') and temporary in text and '"out.safetensors"' in text, synced)
    directory = position(trace, lambda name, text: name == 'fsync' and text.endswith('<%s>' % folder_name), renamed)
    removed = position(trace, lambda name, text: name.startswith('unlink') and '/data' in text + '/', directory)
    assert edit < create < copied <= last_write < synced < renamed < directory < removed
