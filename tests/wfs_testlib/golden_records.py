# SPDX-License-Identifier: MIT
"""The files that real Burns wrote with their recorders, and what must be found in them."""
import json

from wfs_testlib import shared

FOLDER = shared.FOLDER / 'golden/records'
VERSIONS = sorted(path.name for path in FOLDER.glob('v*')) if shared.IS_THERE else []
DTYPES = {'Bool': 'BOOL', 'Flex32': 'FLEX32', 'QFloat': 'OPAQUE'}


def key_of(path):
    """The key of what the description calls so: that of burn-store, which has the raw identifier, and a name for the whole record."""
    return '.'.join('r#type' if part == 'type' else part for part in path.split('.')) or 'item'


def described(version):
    """[(path of a record, its description)] of all files of a version, in every container that can be read."""
    folder = FOLDER / version
    texts = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob('*.json'))}
    result = [(folder / (name + '.mpk'), text) for name, text in texts.items() if 'write_error' not in text]
    for text in json.loads((folder / 'other/index.json').read_text()):
        name = text['file'].split('/')[1].split('.')[0].replace('-bytesrecorder', '')
        if '.bin' not in text['file']:
            result.append((folder / text['file'], text if 'tensors' in text else {**texts[name], 'metadata': None}))
    return result


def listing(text):
    return [(key_of(tensor['key']), DTYPES.get(tensor['dtype'], tensor['dtype']), tensor['shape'], tensor['nbytes'])
            for tensor in text['tensors']]


def _plain(value):
    if isinstance(value, dict) and set(value) == {'$float'}:
        return value['$float']
    return value


def flat(value, path=''):
    """{path: leaf} of JSON values: empty containers are leaves."""
    value = _plain(value)
    if isinstance(value, (dict, list)) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {name: leaf for key, item in pairs for name, leaf in flat(item, '%s.%s' % (path, key) if path else str(key)).items()}
    return {path: value}


def values(text):
    return {key_of(value['path']): value['value'] for value in text['values']}
