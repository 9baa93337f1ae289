# SPDX-License-Identifier: MIT
"""Fixtures: a folder on a real disk, mounts that always go away again, and what may be skipped where."""
import contextlib
import fcntl
import gc
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'tools')]

from wfs_testlib import mount as mounts  # noqa: E402
from wfs_testlib import program, served, shared, st  # noqa: E402

gc.disable()  # until all tests are collected: nothing of them is garbage, and to find that out takes half of the time

IS_CI = os.environ.get('CI') == 'true'
REPORTS = program.BUILD / 'sanitizer-reports'


def pytest_configure(config):
    for marker in ('peers: compares with other programs (tools/test --peers)', 'root: needs the rights of root',
                   'slow: takes longer than the rest together'):
        config.addinivalue_line('markers', marker)
    os.environ['WEIGHTFS_CACHE'] = 'none'  # what one test has fetched is not there for the next
    # Who ends the run by a time limit gets his mounts cleared too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # What is ignored here, as after nohup, would be ignored in every driver; what is handled would not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda signum, frame: None)
    # Every process of ours leaves what a sanitizer says where it is found, the ones without a stderr too.
    REPORTS.mkdir(parents=True, exist_ok=True)
    common = 'log_path=%s/report:exitcode=99:' % REPORTS
    os.environ.setdefault('ASAN_OPTIONS', common + 'detect_leaks=1:allocator_may_return_null=1')
    os.environ.setdefault('UBSAN_OPTIONS', common + 'halt_on_error=1:print_stacktrace=1')


def pytest_collection_finish():
    gc.enable()


def pytest_sessionstart():
    if not os.path.exists(program.COMMAND[-1]):
        pytest.exit('there is no %s: build first, or say WFS_BUILD' % program.COMMAND[-1], 1)


def _why_no_fuse():
    if not os.path.exists('/dev/fuse'):
        return 'there is no /dev/fuse'
    if not os.access('/dev/fuse', os.R_OK | os.W_OK):
        return '/dev/fuse is closed to this user'
    if os.geteuid() != 0 and shutil.which('fusermount3') is None:
        return 'there is no fusermount3'
    return None


WHY_NO_FUSE = _why_no_fuse()


def pytest_collection_modifyitems(items):
    for item in items:
        assert ' at 0x' not in item.nodeid, 'another name in each process: ' + item.nodeid
        reason = None
        if 'tests/mount/' in str(item.path) and WHY_NO_FUSE:
            reason = WHY_NO_FUSE
        elif item.get_closest_marker('root') and os.geteuid() != 0:
            reason = 'only for root'
        elif item.get_closest_marker('peers') and not os.environ.get('WFS_PEERS'):
            reason = 'only with tools/test --peers'
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish(session):
    """With pytest-xdist, its main process has no items, but all reports."""
    reporter = session.config.pluginmanager.get_plugin('terminalreporter')
    skipped = reporter.stats.get('skipped', []) if reporter else []
    if IS_CI and WHY_NO_FUSE and any('mount/' in report.nodeid for report in skipped):
        print('\nthe tests of the mount did not run: %s' % WHY_NO_FUSE)
        session.exitstatus = 1


@pytest.fixture(scope='session', autouse=True)
def nothing_above_the_build_is_opened():
    """A clone can be in a home directory, which is not ours to open to others."""
    above = [program.BUILD, *program.BUILD.parents]
    before = [path.stat().st_mode for path in above]
    yield
    assert [path.stat().st_mode for path in above] == before


@pytest.fixture(autouse=True)
def no_sanitizer_reports():
    yield
    found = [(path, path.read_text(errors='replace')) for path in REPORTS.glob('report*')]
    for path, _ in found:
        path.rename(REPORTS / ('seen-' + path.name))
    assert not found, '\n'.join(text for _, text in found)


@pytest.fixture
def folder():
    """An empty folder on a real disk: with extended attributes, holes and links."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='t', dir=program.folder_of_folders()))
    yield path
    left = [point for point in mounts.mount_points() if point.startswith(str(path.resolve()) + '/')]
    for point in left:
        mounts.force_unmount(point)
    shutil.rmtree(path, ignore_errors=True)
    assert not left, 'still mounted at the end of the test: %s' % left


@pytest.fixture
def memory(folder):
    """Where nothing waits for a disk, if there is such a place: for what does not depend on what a disk keeps."""
    try:
        above = pathlib.Path(tempfile.mkdtemp(prefix='weightfs-', dir='/dev/shm'))
    except OSError:
        above = folder
    (above / 'disk').mkdir()
    yield above / 'disk'
    for point in mounts.mount_points():
        if point.startswith(str(above.resolve()) + '/'):
            mounts.force_unmount(point)
    shutil.rmtree(above, ignore_errors=True)


@pytest.fixture
def among_mounts():
    """For the time of a test that may mount: no test in another process makes a namespace, which would keep the mount."""
    with open(program.BUILD / 'mounts.lock', 'wb') as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield lock


@pytest.fixture
def alone(among_mounts):
    """For a test that makes a namespace: no test in another process has a mount."""
    fcntl.flock(among_mounts, fcntl.LOCK_EX)


@pytest.fixture
def mount(folder, among_mounts):
    """mount(source, 'output=...', ...) -> Mount. Unmounted at the end, and its exit code is judged then."""
    made = []

    def make(source, *options, at=None, makes=True, **more):
        path = at or folder / ('mnt%d' % len(made) if made else 'mnt')
        if makes:
            path.mkdir(exist_ok=True)
        made.append(mounts.Mount(source, path, *options, **more))
        return made[-1]

    yield make
    problems = []
    for one in reversed(made):
        try:
            one.close()
        except Exception as problem:  # the others are to go away as well
            problems.append(problem)
    if problems:
        raise problems[0]


@pytest.fixture
def sample(folder):
    """A copy of the sample checkpoint."""
    return pathlib.Path(shutil.copy(program.SAMPLE, folder / 'encoder.safetensors'))


@pytest.fixture
def small(folder):
    """A small canonical checkpoint whose content is easy to name."""
    return st.write(folder / 'small.safetensors', {
        'a.b.weight': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)),
        'a.b.bias': ('F32', [3], st.f32(7, 8, 9)),
        'a.c': ('U8', [5], b'hello'),
        'step': ('I64', [], (42).to_bytes(8, 'little')),
        'none': ('F32', [0, 4], b''),
    }, {'format': 'pt', 'by': 'a test'})


@pytest.fixture
def need_shared():
    if not shared.IS_THERE:
        pytest.skip(shared.WHY_NOT)


@pytest.fixture
def serve(monkeypatch):
    """serve(folder, ...) -> served.Nginx, whose certificate is trusted. Gone at the end."""
    if served.WHY_NOT and not IS_CI:
        pytest.skip(served.WHY_NOT)
    with contextlib.ExitStack() as stack:
        def make(root, **more):
            server = stack.enter_context(served.Nginx(root, **more))
            monkeypatch.setenv('CURL_CA_BUNDLE', str(server.certificate))
            return server

        yield make
