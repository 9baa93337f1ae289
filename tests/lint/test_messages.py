# SPDX-License-Identifier: MIT
"""The English of messages, help texts, comments and documentation, as far as a program can check it."""
import re
import subprocess

import list_messages
import pytest

from wfs_testlib.program import ROOT, weightfs

# A phrase, and what to write instead. {'messages', 'comments', 'docs'}: where it is checked.
EVERYWHERE = {'messages', 'comments', 'docs'}
PHRASES = [
    (r'\b(tells?|telling|told)\b', 'reports, prints, shows, describes', EVERYWHERE),
    (r'\banew\b', 'again; rewrites, re-reads', EVERYWHERE),
    (r'\b(wants?|wanted)\b', 'expects, needs, requires; expected, required', EVERYWHERE),
    (r'(?<!there )\b(is|are|was|be) no\b(?! (longer|more|larger|smaller|less)\b)', 'is not a', EVERYWHERE),
    (r'\b(is|are|was|were) there\b(?!:)', 'exists', EVERYWHERE),
    (r'\bstands? (twice|before|behind|after|on|in)\b', 'occurs twice, precedes, follows', EVERYWHERE),
    (r'\botherwise than\b', 'differently from', EVERYWHERE),
    (r'\b(he|him|his)\b', 'it, the caller, the reader', EVERYWHERE),
    (r'\bplease\b', 'nothing', EVERYWHERE),
    (r'\bof what\b', 'of the thing itself', {'messages'}),
    (r'\bbehind\b', 'after', {'messages'}),
    (r'\b(says?|said)\b', 'states, according to', {'messages', 'docs'}),
    (r'\b(meanwhile|in vain|can be had|be had)\b', 'a plain word', {'messages', 'docs'}),
]
# Names that a message may begin with, and prefixes that are the name of an error.
NAMES = re.compile(r'(PyTorch|Burn|Burnpack|TorchScript|Unicode|NUL|NaN|JSON|CBOR|UTF-8|SOURCE|[A-Z][a-z]+([A-Z][a-z]+)+:)')
# Given to these, or in a table, a text need not be a message.
PRINTS = {None, 'printf', 'puts'}
TEXTS_ELSEWHERE = re.compile(r'\b\w+\.md\b.{0,20}\bsection\b|\bsection \d|\b\w+\.md \d|\bissue \d|shared/specs|'
                             r'(architecture|reliability|product|style|burn-store-behaviour|field-cases)\.md')
PAGES = sorted([ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md'), *(ROOT / 'docs/man').glob('*.[18]')])
FILES = sorted(path for folder in ('src', 'include', 'tests', 'tools', 'docs') for path in (ROOT / folder).rglob('*')
               if path.suffix in ('.c', '.h', '.py', '.md', '.sh', '.1', '.build', '') and path.is_file() and 'data' not in path.parts)
# A number that can be 1, and a plural: such counts are made by wfs_count. (%d is for constants.)
COUNTED = re.compile(r'%(?:(?:z|ll)?u|\{\})(?: (?:more|open|memo|dict|local|other))? (?!(?:is|as|was|has|less|exists|runs|does|contains)\b)(?:[a-z]+s|are|were|have)\b')
NEVER_ONE = {'... (%zu bytes)'}  # of a long name
ROOMS = sorted({str(path.parent.relative_to(ROOT)) for path in list_messages.sources([ROOT / 'src', ROOT / 'include'])})


def problems(text, kind):
    """What is wrong with a text: the phrases that are not plain English."""
    for phrase, better, kinds in PHRASES:
        if kind in kinds:
            for match in re.finditer(phrase, text):
                yield '%r (write: %s)' % (match[0], better)


def problems_of_report(text):
    """What is wrong with the form of an error message."""
    if re.match(r'[A-Z][a-z]', text) and not NAMES.match(text):
        yield 'begins with a capital letter'
    if text.endswith('.') and not text.endswith('...'):
        yield 'ends with a full stop'
    if text.endswith('!'):
        yield 'ends with an exclamation mark'


def problems_of_counts(text):
    """Plurals after a number that may be 1."""
    for match in COUNTED.finditer(text) if text not in NEVER_ONE else ():
        yield '%r (use wfs_count)' % match[0]


def messages_of(room):
    for path in sorted((ROOT / room).glob('*.[ch]')):
        yield from list_messages.find_messages(path)


def place(message):
    return '%s:%d: %s' % (message.path.relative_to(ROOT), message.line, message.text)


@pytest.mark.parametrize('room', ROOMS)
def test_messages_are_plain_english(room):
    found = ['%s: %s' % (place(message), problem) for message in messages_of(room) for problem in
             [*problems(message.text, 'messages'), *problems_of_counts(message.text),
              *(problems_of_report(message.text) if message.function not in PRINTS else [])]]
    assert not found, '\n'.join(found)


@pytest.mark.parametrize('room', ROOMS)
def test_comments_are_plain_english(room):
    found = ['%s: %s' % (place(comment), problem) for path in sorted((ROOT / room).glob('*.[ch]'))
             for comment in list_messages.find_comments(path) for problem in problems(comment.text, 'comments')]
    assert not found, '\n'.join(found)


@pytest.mark.parametrize('page', PAGES, ids=lambda path: path.name)
def test_pages_are_plain_english(page):
    found = ['%d: %s' % (number, problem) for number, line in enumerate(page.read_text().splitlines(), 1)
             for problem in problems(line, 'docs')]
    assert not found, '\n'.join(found)


def test_help_texts_are_plain_english():
    verbs = re.findall(r'^  (\w+)  ', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)
    assert 'ls' in verbs and 'recover' in verbs
    for words in ([], *([verb] for verb in verbs)):
        text = weightfs(*words, '--help').stdout
        assert list(problems(text, 'docs')) == [], text


@pytest.mark.parametrize('part', sorted({path.relative_to(ROOT).parts[0] for path in FILES}))
def test_no_file_refers_to_a_text_that_is_not_here(part):
    found = [(path, line) for path in FILES if path.relative_to(ROOT).parts[0] == part and path.name != 'test_messages.py'
             for line in path.read_text().splitlines() if TEXTS_ELSEWHERE.search(line)]
    assert not found, found


def listed(folder, text):
    path = folder / 'x.c'
    path.write_text(text)
    return [(message.line, message.function, message.text) for message in list_messages.find_messages(path)]


def test_the_list_has_every_literal_that_a_person_may_read(folder):
    assert listed(folder, 'int f(void)\n{\n    return wfs_fail(err, EIO, "cannot read %" PRIu64 " bytes "\n'
                          '                    "of %s", n, name("x"));\n}\n') == [(3, 'wfs_fail', 'cannot read %{} bytes of %s')]
    assert listed(folder, '/* "not a message" */ #include "a b.h"\nstatic const char *x[] = {"two words", "one"};\n') == [
        (2, None, 'two words')]
    assert listed(folder, 'log_error("failed"); strcmp(x, "failed"); puts(n == 1 ? "one tensor" : "two \\"tensors\\"");') == [
        (1, 'log_error', 'failed'), (1, 'puts', 'one tensor'), (1, 'puts', 'two "tensors"')]


def test_the_list_is_printed_with_its_places():
    lines = subprocess.run([ROOT / 'tools/list_messages.py'], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    assert len(lines) > 500
    assert all(re.fullmatch(r'src/[\w/]+\.[ch]:\d+\t[\w-]+\t.+', line) for line in lines)


@pytest.mark.parametrize('text', ['the name tells nothing', 'a verb is wanted', 'it is no number', 'is there already', 'made anew'])
def test_a_riddle_is_found(text):
    assert len(list(problems(text, 'messages'))) == 1


@pytest.mark.parametrize('text', ['%zu tensors', 'has %{} bytes', 'and %zu more keys', '%llu are left'])
def test_a_plural_of_a_number_is_found(text):
    assert len(list(problems_of_counts(text))) == 1


@pytest.mark.parametrize('text', ['%s', 'more than %d bytes', 'entry %u is not set', '%zu of %s', 'the entry at %llu runs past it'])
def test_a_number_without_a_plural_is_not_found(text):
    assert list(problems_of_counts(text)) == []


@pytest.mark.parametrize('text', ['there is no index', 'the tensor is no longer readable', 'unknown limit; there are: a b'])
def test_plain_english_is_not_found(text):
    assert list(problems(text, 'messages')) == []


def test_every_limit_is_documented():
    known = weightfs('ls', '--limit=x=1', ROOT / 'README.md', code=2).error.partition('known are: ')[2].split()
    pages = ''.join(path.read_text() for path in PAGES)
    assert len(known) > 20 and [name for name in known if '`%s`' % name not in pages and '.It Li %s ' % name not in pages] == []


def test_every_attribute_and_control_file_is_documented_in_both_places():
    semantics, manual = (ROOT / 'docs/semantics.md').read_text(), (ROOT / 'docs/man/weightfs.1').read_text()
    attributes = re.findall(r'^    \{"(\w+)", (?:true|false), ATTR_', (ROOT / 'src/tree/attrs.c').read_text(), re.M)
    rows = semantics.split('\n## Attributes\n')[1].split('\n\n- ')[0]
    assert len(attributes) > 10 and [name for name in attributes if '`%s`' % name not in rows or 'user.weightfs.%s\n' % name not in
                                     manual.replace(' , ', '\n')] == []
    table = semantics.split('\n## The control directory\n')[1].split('\n\nWhoever')[0]
    files = re.findall(r'`([\w/]+\.\w+)`', ''.join(row.split('|')[1] for row in table.splitlines() if row.startswith('| `')))
    assert len(files) > 8 and [name for name in files if not re.search(r'^\.It Pa .*\b%s\b|^%s\b' % (2 * (re.escape(name),)), manual, re.M)] == []
