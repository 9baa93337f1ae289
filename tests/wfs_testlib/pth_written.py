# SPDX-License-Identifier: MIT
"""What a .pth of ours must be like for torch to load it in every mode, by Python's zipfile and pickletools alone."""
import pickletools
import struct
import zipfile

# Opcodes that torch's restricted unpickler takes.
PLAIN = {'PROTO', 'GLOBAL', 'NEWOBJ', 'REDUCE', 'BUILD', 'APPEND', 'APPENDS', 'SETITEM', 'SETITEMS', 'MARK', 'TUPLE', 'TUPLE1',
         'TUPLE2', 'TUPLE3', 'NONE', 'NEWTRUE', 'NEWFALSE', 'EMPTY_TUPLE', 'EMPTY_LIST', 'EMPTY_DICT', 'EMPTY_SET', 'BININT',
         'BININT1', 'BININT2', 'BINFLOAT', 'BINUNICODE', 'SHORT_BINSTRING', 'BINPERSID', 'BINGET', 'LONG_BINGET', 'BINPUT',
         'LONG_BINPUT', 'LONG1', 'STOP'}


def storages(data):
    """{key: number of elements} that the persistent ids of a pickle name: the last text but one, the last integer."""
    found, recent, memo = {}, [], {}
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ('BINUNICODE', 'BININT', 'BININT1', 'BININT2', 'LONG1', 'GLOBAL'):
            recent.append(argument)
        elif opcode.name in ('BINPUT', 'LONG_BINPUT'):
            memo[argument] = recent[-1] if recent else None
        elif opcode.name in ('BINGET', 'LONG_BINGET'):
            recent.append(memo.get(argument))
        elif opcode.name == 'BINPERSID':
            assert recent[-5] == 'storage'
            assert found.setdefault(recent[-3], recent[-1]) == recent[-1]
    return found


def check(path, plain=True):
    """Checks the file and returns {name of a record: its bytes}, without the folder."""
    with open(path, 'rb') as file:
        raw = file.read()
    assert raw[:4] == b'PK\3\4'
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        entries = archive.infolist()
        contents = {entry.filename.partition('/')[2]: archive.read(entry) for entry in entries}
    assert len(contents) == len(entries) and {entry.filename.partition('/')[0] for entry in entries} == {'archive'}
    for entry in entries:
        n_name, n_extra = struct.unpack('<HH', raw[entry.header_offset + 26:entry.header_offset + 30])
        assert entry.compress_type == 0 and (entry.header_offset + 30 + n_name + n_extra) % 64 == 0
    assert contents['byteorder'] == b'little' and contents['version'] == b'3\n' and 'constants.pkl' not in contents
    is_plain = {opcode.name for opcode, _, _ in pickletools.genops(contents['data.pkl'])} <= PLAIN
    assert is_plain or not plain
    if not is_plain:
        return contents
    named = storages(contents['data.pkl'])
    assert {'data/' + key for key in named} == {name for name in contents if name.startswith('data/')}
    for key, n_elements in named.items():
        n_bytes = len(contents['data/' + key])
        assert n_bytes % n_elements == 0 if n_elements else n_bytes == 0
    return contents
