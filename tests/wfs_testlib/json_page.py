# SPDX-License-Identifier: MIT
"""docs/json.md beside what the program prints: which fields the page has for a verb, and which a document has."""
import json
import re

from wfs_testlib.program import ROOT, weightfs

PAGE = (ROOT / 'docs/json.md').read_text()
# What is named by the checkpoint, not by us: members of these are not fields.
OPEN = {'metadata', 'dtypes', 'percentiles'}
# A field whose name the page cannot have, for the sake of its English: the list of what options decided.
NAMELESS = {'told'}
# Verbs whose output is the content that they are for.
WITHOUT = {'cat', 'config', 'report', 'map'}


def verbs():
    listed = weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0]
    return set(re.findall('^  ([a-z]+) ', listed, re.M))


def fields(value):
    """The names of members, at any depth."""
    if isinstance(value, list):
        return set().union(*map(fields, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(set().union(*map(fields, one.values())) if name in OPEN and isinstance(one, dict) else fields(one) for name, one in value.items()))


def _sections():
    """Title and text; what is of every verb comes first."""
    parts = re.split(r'^## (.*)\n', PAGE, flags=re.M)
    return [('', parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def _verbs_of(title):
    return re.findall('[a-z]+', title.split(':')[-1])


def known(verb):
    """All names that the page has for a verb, and those of the pages that it names for lists of their own."""
    text = _sections()[0][1] + ''.join(text for title, text in _sections() if verb in _verbs_of(title))
    if verb == 'plan':
        text += (ROOT / 'docs/view.md').read_text().split('## The report')[1].split('\n## ')[0]
    if verb == 'patch':
        text += (ROOT / 'docs/formats/patch.md').read_text()
    return set(re.findall(r'`(\w+)`', text))


def promised(verb):
    """The fields that are rows of the tables which have a verb."""
    return set().union(*(re.findall(r'^\| `(\w+)`', text, re.M) for title, text in _sections() if verb in _verbs_of(title)))


def printed(verb, *words, code=None, **more):
    """The one document that a verb prints with --json, of which the page has every field."""
    done = weightfs(verb, '--json', *words, code=code, has_notices=True, **more)
    found = json.loads(done.stdout)
    assert found['schema'] == 1 and list(found)[0] == 'schema'
    assert fields(found) - known(verb) - NAMELESS == set(), words
    return found
