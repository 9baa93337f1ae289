# SPDX-License-Identifier: MIT
"""A mount that an NFS server exports. The server keeps file handles, and opens them when it likes."""
import ctypes
import ctypes.util
import os
import pathlib
import shutil
import socket
import subprocess

import pytest

from wfs_testlib import program, st
from wfs_testlib.handles import make_kernel_forget
from wfs_testlib.mount import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]

CONFIG = '''
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false;
                  Enable_RQUOTA = false; Enable_UDP = false; }}
NFSV4 {{ Graceless = true; RecoveryBackend = "fs"; RecoveryRoot = "{folder}/recovery"; Delegations = false;
         Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }}
EXPORT {{ Export_Id = 7; Path = "{path}"; Pseudo = /w; Access_Type = RW; Squash = No_Root_Squash;
          SecType = sys; Filesystem_Id = 7.7; Disable_ACL = true; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
'''


def why_not():
    if not shutil.which('ganesha.nfsd', path='/usr/bin:/usr/sbin'):
        return 'there is no nfs-ganesha'
    if not any(pathlib.Path('/usr/lib').glob('*/ganesha/libfsalvfs.so')):
        return 'there is no nfs-ganesha-vfs'
    return None if ctypes.util.find_library('nfs') else 'there is no libnfs'


class Client:
    """libnfs, which speaks NFS without the kernel."""

    def __init__(self, port):
        self.lib = ctypes.CDLL(ctypes.util.find_library('nfs'))
        for name in ('nfs_init_context', 'nfs_parse_url_dir'):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.nfs_get_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.lib.nfs_init_context())
        url = b'nfs://127.0.0.1/w?version=4&nfsport=%d' % port
        assert self.lib.nfs_parse_url_dir(self.context, url)
        self.call('nfs_mount', b'127.0.0.1', b'/w')

    def call(self, name, *args):
        code = getattr(self.lib, name)(self.context, *args)
        if code < 0:
            raise OSError(-code, '%s: %s' % (name, self.lib.nfs_get_error(self.context)))
        return code

    def open(self, path, flags=os.O_RDONLY):
        file = ctypes.c_void_p()
        self.call('nfs_open2', os.fsencode(path), flags, 0o644, ctypes.byref(file))
        return file

    def read_open(self, file, n_bytes, offset=0):
        buffer = ctypes.create_string_buffer(n_bytes)
        n = self.call('nfs_pread', file, ctypes.c_uint64(offset), ctypes.c_uint64(n_bytes), buffer)
        return buffer.raw[:n]

    def read(self, path):
        file = self.open(path)
        try:
            return self.read_open(file, 1 << 16)
        finally:
            self.call('nfs_close', file)

    def write(self, path, content, flags=os.O_WRONLY | os.O_CREAT):
        file = self.open(path, flags)
        assert self.call('nfs_pwrite', file, ctypes.c_uint64(0), ctypes.c_uint64(len(content)), content) == len(content)
        self.call('nfs_close', file)


@pytest.fixture
def server(folder):
    """server(mnt) -> port. It ends with the test."""
    if why_not():
        pytest.skip(why_not())
    running = []

    def start(mnt):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        (folder / 'recovery').mkdir()
        config = folder / 'ganesha.conf'
        config.write_text(CONFIG.format(port=port, folder=folder, path=mnt))
        log = folder / 'ganesha.log'
        running.append(subprocess.Popen(['ganesha.nfsd', '-F', '-f', config, '-L', log, '-p', folder / 'pid'],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def is_up():
            assert running[0].poll() is None, log.read_text()
            return 'NFS SERVER INITIALIZED' in (log.read_text() if log.exists() else '')
        wait_for(is_up, 'the NFS server', 4 * program.PATIENCE)
        return port

    yield start
    for process in running:
        process.kill()
        process.wait()


CONTENT = {'dir%d/t%d' % (i % 7, i): b'content of %d' % i for i in range(60)}


@pytest.fixture
def served(mount, folder, server):
    tensors = {name.replace('/', '.'): ('U8', [len(content)], content) for name, content in CONTENT.items()}
    source = st.write(folder / 'model.safetensors', tensors)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors')).allow('committed')
    client = Client(server(mnt.path))
    yield mnt, client
    client.lib.nfs_destroy_context(client.context)


def test_an_nfs_client_sees_what_the_mount_shows(served):
    mnt, client = served
    held = client.open('/dir0/t0')
    for i in range(5):
        for name, content in CONTENT.items():
            assert name == 'dir0/t0' or client.read('/' + name) == content  # libnfs opens a file once
        client.write('/dir1/made%d' % i, b'1')
        make_kernel_forget(mnt.path)
        client.call('nfs_unlink', b'/dir1/made%d' % i)
        (mnt / ('dir2/other%d' % i)).write_bytes(b'2')
        assert client.read('/dir2/other%d' % i) == b'2'
        (mnt / ('dir2/other%d' % i)).unlink()
        make_kernel_forget(mnt.path)
        assert client.read_open(held, 100) == CONTENT['dir0/t0']
    client.call('nfs_close', held)


def test_edits_of_an_nfs_client_are_committed(served, folder):
    mnt, client = served
    client.write('/dir0/t0', b'CONTENT', os.O_WRONLY)
    make_kernel_forget(mnt.path)
    client.call('nfs_rename', b'/dir1/t1', b'/dir2/moved')
    client.call('nfs_unlink', b'/dir3/t3')
    make_kernel_forget(mnt.path)
    client.write('/dir0/t7', b'Content', os.O_WRONLY)
    client.call('nfs_mkdir', b'/new')
    mnt.commit()
    expected = dict(CONTENT)
    expected['dir0/t0'], expected['dir0/t7'] = b'CONTENT of 0', b'Content of 7'
    expected['dir2/moved'] = expected.pop('dir1/t1')
    del expected['dir3/t3']
    assert {key.replace('.', '/'): data for key, (_, _, data) in st.read(folder / 'out.safetensors').tensors.items()} == expected
