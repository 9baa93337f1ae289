# SPDX-License-Identifier: MIT
"""What `meson install` puts into a system: one library, a program that uses it, and one header that suffices."""
import os
import pathlib
import re
import shutil

import pytest

from wfs_testlib import st
from wfs_testlib.program import BUILD, IS_INSTRUMENTED, ROOT, tool

pytestmark = pytest.mark.skipif(not (BUILD / 'build.ninja').exists(), reason='there is no build to install')

@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """{name: path} of all that is installed; of the files called weightfs, a completion among them, the program."""
    folder = tmp_path_factory.mktemp('installed')
    tool('meson', 'install', '-C', BUILD, '--no-rebuild', env={**os.environ, 'DESTDIR': str(folder)})
    named = {path.name: path for path in folder.rglob('*') if not path.is_dir()}
    return {**named, **{path.name: path for path in folder.rglob('bin/*')}}


def symbols(path, *options):
    return {line.split()[0] for line in tool('nm', '-P', *options, path).stdout.splitlines()}


def needed(path):
    return re.findall(r'\(NEEDED\).*\[(.*)\]', tool('readelf', '-d', path).stdout)


def with_library(installed):
    return {**os.environ, 'LD_LIBRARY_PATH': str(installed['libweightfs.so.0'].parent)}


def test_the_program_uses_the_library_and_has_no_copy_of_it(installed, small):
    assert 'libweightfs.so.0' in needed(installed['weightfs'])
    assert not {'libpcre2-8.so.0', 'libz.so.1'} & set(needed(installed['weightfs']))
    library = symbols(BUILD / 'src/libweightfs-static.a', '-g', '--defined-only')
    common = symbols(BUILD / 'src/libweightfs-common.a', '-g', '--defined-only')
    both = {name for name in library & symbols(BUILD / 'src/weightfs', '--defined-only') if '_' in name and not name.startswith('/')}
    assert len(library) > 1000 and both <= common, both - common
    keys = tool(installed['weightfs'], 'ls', small, env=with_library(installed)).stdout
    assert 'a.b.weight' in keys


def test_what_is_in_both_has_no_state():
    """A variable would have two values. The seed of hash tables may: each table is used by the code that made it."""
    table = tool('objdump', '-t', BUILD / 'src/libweightfs-common.a').stdout
    assert 'strbuf_add' in table and re.findall(r' O (?:\.data|\.bss|\.tbss|\.tdata|\*COM\*)\t\w+ (?!seed$|once\.\d+$)(\S+)', table, re.M) == []


def test_no_name_of_the_static_library_is_one_of_those_that_it_is_linked_with():
    """A program that is linked with static libraries has one function of each name, whichever comes first."""
    ours = symbols(BUILD / 'src/libweightfs-static.a', '-g', '--defined-only') | symbols(BUILD / 'src/libweightfs-common.a', '-g', '--defined-only')
    assert 'strbuf_add' in ours and 'wfs_catalog_find' in ours
    linked = re.findall(r'=> (\S+)', tool('ldd', BUILD / 'src/libweightfs.so.0').stdout)
    archives = {pathlib.Path(tool('cc', '-print-file-name=' + re.sub(r'\.so.*', '.a', os.path.basename(path))).stdout.strip()) for path in linked}
    archives = {path for path in archives if path.is_file() and path.read_bytes()[:7] == b'!<arch>'}
    assert any(path.name == 'libjansson.a' for path in archives), archives
    for path in [*map(pathlib.Path, linked), *archives]:
        theirs = {name.split('@')[0] for name in symbols(path, '--defined-only', *(['-D'] if '.so' in path.name else ['-g']))}
        assert len(theirs) > 5 and not theirs & ours, '%s has these too: %s' % (path.name, sorted(theirs & ours))


def test_the_program_finds_the_library_where_it_is_installed(installed):
    places = re.findall(r'\(RUNPATH\).*\[(.*)\]', tool('readelf', '-d', installed['weightfs']).stdout)
    folder = str(installed['libweightfs.so.0'].parent)
    assert len(places) == (0 if '/local/' not in folder else 1) and all(folder.endswith(place) for place in places)


def exported_names(node):
    """The functions that libweightfs.so.0 exports in a version node."""
    return {name for name, at in (entry.split('@@') for entry in symbols(BUILD / 'src/libweightfs.so.0', '-D', '--defined-only')
                                  if '@@' in entry) if at == node and name != node}


def declared_names(headers):
    return set(re.findall(r'\bwfs_\w+(?=\()', ''.join(path.read_text() for path in headers)))


def test_the_library_promises_what_its_header_declares_and_exports_the_rest_to_the_program_only(installed):
    assert [path.name for path in installed.values() if path.suffix == '.h'] == ['weightfs.h']
    promised, private = exported_names('WEIGHTFS_1'), exported_names('WEIGHTFS_PRIVATE')
    assert len(promised) > 20 and promised == declared_names([installed['weightfs.h']]), 'change src/libweightfs.map and weightfs.h together'
    assert len(private) > 200 and private <= declared_names((ROOT / 'include/weightfs').glob('*.h')), 'add it to src/libweightfs.map'
    every = {name.split('@@')[0] for name in symbols(BUILD / 'src/libweightfs.so.0', '-D', '--defined-only')}
    assert every - {'WEIGHTFS_1', 'WEIGHTFS_PRIVATE'} == promised | private


def test_the_debian_package_lists_what_the_library_promises():
    listed = re.findall(r'^ (\w+)@WEIGHTFS_1 [0-9.]+$', (ROOT / 'packaging/debian/libweightfs0.symbols').read_text(), re.M)
    assert set(listed) - {'WEIGHTFS_1'} == exported_names('WEIGHTFS_1'), 'change packaging/debian/libweightfs0.symbols and src/libweightfs.map together'


def test_the_debian_package_is_built_with_what_the_tools_install():
    tools = re.search(r'BUILD_PACKAGES=\((.*?)\)', (ROOT / 'tools/common.sh').read_text())[1].split()
    control = (ROOT / 'packaging/debian/control').read_text().split('Build-Depends:')[1].split('\n\n')[0]
    assert {name for name in tools if name.endswith('-dev')} - {'libc6-dev'} == set(re.findall(r'^ ([\w.+-]+-dev),', control, re.M))


@pytest.mark.skipif(IS_INSTRUMENTED, reason='the compiler of the test knows nothing of sanitizers')
def test_the_example_of_the_page_is_built_with_what_is_installed(installed, folder, small):
    """docs/library.md; also as C++, as far as the header goes."""
    example = re.search(r'```c\n(.*?)```', (ROOT / 'docs/library.md').read_text(), re.S)[1]
    (folder / 'example.c').write_text(example)
    (folder / 'header.cc').write_text('#include <weightfs.h>\nint main() { return wfs_version() == nullptr; }\n')
    top = str(installed['weightfs.pc']).split('/usr/')[0]
    env = {**os.environ, 'PKG_CONFIG_PATH': str(installed['weightfs.pc'].parent), 'PKG_CONFIG_SYSROOT_DIR': top}
    flags = tool('pkg-config', '--cflags', '--libs', 'weightfs', env=env).stdout.split()
    tool('gcc', '-Wall', '-Wextra', '-Werror', '-o', folder / 'example', folder / 'example.c', *flags)
    if shutil.which('g++'):
        tool('g++', '-Wall', '-Wextra', '-Werror', '-o', folder / 'header', folder / 'header.cc', *flags)
        tool(folder / 'header', env=with_library(installed))
    lines = tool(folder / 'example', small, folder / 'out.pth', env=with_library(installed)).stdout.splitlines()
    assert lines[-1] == 'a.b.weight begins with 1' and 'a.b.weight F16 [2, 3]' in lines and 'step I64 []' in lines
    assert sorted(row.split('\t')[0] for row in tool(installed['weightfs'], 'ls', folder / 'out.pth', env=with_library(
        installed)).stdout.splitlines()) == sorted(set(st.read(small).tensors) - {'a.b.weight'})
    assert tool(folder / 'example', folder / 'none', folder / 'x.pth', code=1, env=with_library(installed)).stdout == ''


@pytest.mark.skipif(IS_INSTRUMENTED, reason='the compiler of the test knows nothing of sanitizers')
def test_a_program_takes_the_library_in_without_a_clash_of_names(folder, small):
    """What -Ddefault_library=static installs. The program has functions with names of ours."""
    archive = folder / 'libweightfs.a'
    tool('sh', ROOT / 'src/embed.sh', ROOT / 'src/libweightfs.map', BUILD / 'src/libweightfs-static.a', archive)
    declared = declared_names([ROOT / 'include/weightfs.h'])
    assert {name for name in symbols(archive, '-g', '--defined-only') if not name.endswith(':')} == declared
    example = re.search(r'```c\n(.*?)```', (ROOT / 'docs/library.md').read_text(), re.S)[1]
    (folder / 'example.c').write_text(example + 'int utf8_encode(void);\nint utf8_encode(void) { abort(); }\nint strbuf_add(void);\nint strbuf_add(void) '
                                      '{ abort(); }\nint wfs_load(void);\nint wfs_load(void) { abort(); }\n')
    libraries = ['-lcbor', '-ljansson', '-lmpack', '-lnettle', '-lpcre2-8', '-lxxhash', '-lz', '-lm']
    tool('gcc', '-Wall', '-Werror', '-I', ROOT / 'include', '-o', folder / 'example', folder / 'example.c', archive, '-Wl,--gc-sections', *libraries)
    assert 'a.b.weight begins with 1' in tool(folder / 'example', small, folder / 'out.pth').stdout.splitlines()


@pytest.mark.skipif(shutil.which('man') is None, reason='there is no man')
def test_man_finds_the_page_of_a_verb(installed):
    folder = installed['weightfs.1'].parents[1]
    text = tool('man', '-M', folder, 'weightfs', 'ls', env={**os.environ, 'LC_ALL': 'C.UTF-8'}).stdout
    assert 'weightfs-ls' in text and '--depth=N' in text
