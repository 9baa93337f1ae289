#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/reject/patch: per case NAME.json, the list of edits of a patch, and NAME.expect, whose first line is the exit code and
whose second is the message behind the file's name; good*.json are accepted. The patch has the contents of CONTENTS. With --check, says
instead whether the folder is what this script would write."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from wfs_testlib import reject_corpus, st  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data', 'reject', 'patch')
DAMAGED, UNSUPPORTED = 5, 6
CONTENTS = {'w': ('F32', [4], st.f32(1, 2, 3, 4)), 'u': ('U8', [2], b'ab'), 'v.json': ('U8', [7], b'{"a":1}')}
LIST = 'its list of edits: '
goods, cases = {}, {}


def raw(name, message, text, code=DAMAGED):
    assert name not in cases, name
    cases[name] = (text if isinstance(text, bytes) else text.encode(), code, message)


def case(name, message, code=DAMAGED, **members):
    raw(name, message, json.dumps({'version': 1, **members}), code)


def tensor(name, message, code=DAMAGED, **members):
    case(name, message, code, tensors=[members])


def good(name, **members):
    goods[name] = json.dumps({'version': 1, **members}).encode()


NEW = {'to': 'n', 'content': 'w', 'dtype': 'F32', 'shape': [2, 2]}
good('good-empty')
good('good', tensors=[
    {'from': 'model.embed.weight', 'to': 'embed'}, {'from': 'step', 'to': None}, NEW, {'from': 'head.weight', 'to': 'again', 'is_copy': True},
    {'from': 'head.mask', 'to': 'head.mask', 'dtype': 'U8', 'shape': [1, 2, 0], 'was': {'dtype': 'BOOL', 'shape': [1, 0, 2]}},
    {'from': 'model.layers.3.norm.weight', 'to': 'model.layers.3.norm.weight', 'content': 'u', 'dtype': 'U8', 'shape': [2], 'param_id': '7',
     'was': {'dtype': 'BF16', 'shape': [4], 'xxh3': '0123456789abcdef'}, 'place': None}],
     values=[{'to': 'v', 'content': 'v.json'}, {'from': 'none', 'to': None}],
     metadata=[{'name': 'a', 'was': None, 'value': 'b'}, {'name': 'c', 'was': 'd', 'value': None}])
good('good-swap', tensors=[{'from': 'step', 'to': 'packed', 'place': 'head.mask'}, {'from': 'packed', 'to': 'step', 'place_of_value': 'x'},
                           {'from': 'a\\x00', 'to': 'b\\x0a'}])
good('good-digest-only', tensors=[{'from': 'a', **NEW, 'was': {'xxh3': '0123456789abcdef'}}, {'from': 'b', 'to': None, 'was': {'dtype': 'F32'}}])

raw('empty', LIST + 'the text ends too early at byte 0', b'')
raw('not-json', LIST + 'expected an object at byte 0', 'version 1')
raw('not-an-object', LIST + 'expected an object at byte 0', '[]')
raw('not-utf8', 'its list of edits is not UTF-8', b'{"version": 1, "\xff": 1}')
raw('cut', LIST + 'the text ends too early at byte 32', '{"version": 1, "tensors": [{"to"')
raw('more-behind', LIST + 'text after the end at byte 15', '{"version": 1} {}')
raw('no-version', 'its list of edits has no version', '{}')
raw('deep', LIST + 'expected a string at byte 33', '{"version":1,"tensors":[{"from": ' + '[' * 200 + ']' * 200 + '}]}')
case('version-2', 'is a patch of version 2, and only 1 is known', UNSUPPORTED, version=2)
raw('version-text', LIST + 'expected a whole number from 0 to 2^64-1 at byte 12', '{"version": "1"}')
case('unknown-member', "its list of edits has 'more' at byte 15, which this version does not know", more=[])
tensor('unknown-of-an-edit', "its list of edits has 'colour' at byte 52, which this version does not know", **{'from': 'a', 'to': 'b', 'colour': 1})
case('unknown-of-a-value', "its list of edits has 'dtype' at byte 59, which this version does not know",
     values=[{'to': 'v', 'content': 'v.json', 'dtype': 'F32'}])
case('unknown-of-metadata', "its list of edits has 'is' at byte 42, which this version does not know", metadata=[{'name': 'a', 'is': 'b'}])
case('tensors-no-list', LIST + 'expected an array at byte 26', tensors={})
case('an-edit-is-a-number', LIST + 'expected an object at byte 27', tensors=[1])
tensor('no-key', 'its list of edits has one without a key')
tensor('key-number', LIST + 'expected a string at byte 34', to=7)
tensor('key-nul', LIST + 'a name has a NUL at byte 34', to='a\0b')
tensor('added-without-content', "its edit of 'a' adds it, but there is no content", to='a')
tensor('copy-of-nothing', "its edit of 'n' is a copy of nothing", **NEW, is_copy=True)
tensor('copy-false', LIST + 'expected true at byte 63', **{'from': 'a', 'to': 'b', 'is_copy': False})
tensor('content-missing', "its list of edits names 'x', which it lacks", **{**NEW, 'content': 'x'})
tensor('content-too-short', "its edit of 'n' has new content of another size than its dtype and shape", **{**NEW, 'content': 'u'})
tensor('content-without-shape', "its edit of 'n' has new content, but no dtype or no shape", to='n', content='w', dtype='F32')
tensor('shape-overflows', "its edit of 'n' has new content of another size than its dtype and shape", **{**NEW, 'shape': [2 ** 63, 2 ** 63]})
tensor('shape-negative', LIST + 'expected a whole number from 0 to 2^64-1 at byte 81', **{**NEW, 'shape': [-1]})
tensor('shape-too-long', LIST + 'a shape has more than 16384 dimensions', UNSUPPORTED, **{**NEW, 'shape': [1] * 16385})
tensor('dtype-unknown', LIST + "no dtype 'F31'", **{**NEW, 'dtype': 'F31'})
tensor('removed-and-changed', "its edit of 'a' removes it and does something else, too", **{'from': 'a', 'to': None, 'shape': [1]})
tensor('digest-too-short', LIST + "'12' is not an xxh3", **{'from': 'a', **NEW, 'was': {'xxh3': '12'}})
tensor('digest-not-hex', LIST + "'0123456789abcdeg' is not an xxh3", **{'from': 'a', **NEW, 'was': {'xxh3': '0123456789abcdeg'}})
tensor('was-text', LIST + 'expected an object at byte 59', **{'from': 'a', 'to': 'b', 'was': 'x'})
case('two-of-one', "its edit of 'c' is one of two", tensors=[{'from': 'a', 'to': 'b'}, {'from': 'a', 'to': 'c'}])
case('two-make-one', "its edit of 'c' is one of two", tensors=[{'from': 'a', 'to': 'c'}, {'from': 'b', 'to': 'c'}])
case('two-by-an-escape', "its edit of 'c' is one of two", tensors=[{'from': 'a', 'to': 'c'}, {'from': 'b', 'to': '\\x63'}])
case('values-share-content', "its edit of 'y' has the content of another one",
     values=[{'to': 'x', 'content': 'v.json'}, {'to': 'y', 'content': 'v.json'}])
case('metadata-without-name', 'its list of edits has metadata without a name', metadata=[{'value': 'a'}])


def wanted():
    files = {name + '.json': content for name, content in goods.items()}
    for name, (content, code, message) in cases.items():
        files[name + '.json'] = content
        files[name + '.expect'] = b'%d\n%s\n' % (code, message.encode())
    return files


if __name__ == '__main__':
    reject_corpus.main(FOLDER, wanted(), len(cases))
