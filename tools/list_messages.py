#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Lists the messages in the sources: every string literal of two words or more, and whatever is given to a function that
reports an error.

Usage: tools/list_messages.py [--comments] [FOLDER...]

Prints a line for each: file, line, the function that it is given to (or -) and the text. Adjacent literals are one text,
and {} stands for a macro between them, such as PRIu64. With --comments, lists the comments instead. FOLDER: src by
default."""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = re.compile(r'''(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<char>'(?:[^'\\\n]|\\.)*')'''
                   r'''|(?P<include>^[ \t]*\#[ \t]*include[^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<space>\s+|\\\n)|(?P<other>.)''', re.S | re.M)
# Functions that report the text that they are given.
REPORTS = re.compile(r'wfs_fail|print_error|print_failure|log_(?!.*level)\w+|\w*_fail(_\w+)?|fail(_\w+)?')
NO_CALL = {'if', 'for', 'while', 'switch', 'return', 'sizeof', 'defined', '__attribute__'}
KINDS_OF_STRING = re.compile(r'[A-Z]\w*')  # macros that are spelled between literals: PRIu64, WFS_VERSION

Message = collections.namedtuple('Message', 'path line function text')


def tokens(text):
    line = 1
    for match in TOKEN.finditer(text):
        yield match.lastgroup, match[0], line
        line += match[0].count('\n')


def unescape(literal):
    return re.sub(r'\\(.)', lambda m: {'n': '\n', 't': '\t', '"': '"', '\\': '\\'}.get(m[1], m[0]), literal[1:-1])


def is_prose(text):
    """Two words or more: what a person may read."""
    return len(re.findall(r'[A-Za-z]{2,}', text)) > 1 and ' ' in text.strip()


class Scanner:
    """Reads the tokens of one file and keeps the calls that are open."""

    def __init__(self, path):
        self.path = path
        self.calls, self.last_name = [], None
        self.parts, self.line = [], 0
        self.found = []

    def finish(self):
        """Ends the text that is being collected."""
        if self.parts:
            while self.parts[-1] == '{}' and len(self.parts) > 1 and not self.parts[-2].endswith('%'):
                self.parts.pop()
            function = next((call for call in reversed(self.calls) if call), None)
            text = ''.join(self.parts)
            if is_prose(text) or function and REPORTS.fullmatch(function) and re.search('[a-z]{2}', text):
                self.found.append(Message(self.path, self.line, function, text))
        self.parts = []

    def feed(self, kind, text, line):
        if kind in ('space', 'comment', 'include'):
            return
        if kind == 'string':
            if not self.parts:
                self.line = line
            self.parts.append(unescape(text))
            return
        if kind == 'name' and self.parts and KINDS_OF_STRING.fullmatch(text):
            self.parts.append('{}')
            return
        self.finish()
        if text == '(':
            self.calls.append(self.last_name if self.last_name not in NO_CALL else None)
        elif text == ')' and self.calls:
            self.calls.pop()
        elif text in ';}' and kind == 'other':
            self.calls.clear()
        self.last_name = text if kind == 'name' else None


def find_messages(path):
    scanner = Scanner(path)
    for kind, text, line in tokens(path.read_text()):
        scanner.feed(kind, text, line)
    scanner.finish()
    return scanner.found


def find_comments(path):
    """Comments as one line each, without their stars."""
    for kind, text, line in tokens(path.read_text()):
        if kind == 'comment' and 'SPDX' not in text:
            yield Message(path, line, None, ' '.join(re.sub(r'^\s*(/\*+|//|\*)|\*/$', ' ', text, flags=re.M).split()))


def sources(folders):
    return sorted(path for folder in folders for path in pathlib.Path(folder).rglob('*.[ch]'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--comments', action='store_true', help='list the comments instead')
    parser.add_argument('folder', nargs='*', default=[ROOT / 'src'], help='default: src')
    args = parser.parse_args()
    for path in sources(args.folder):
        for message in find_comments(path) if args.comments else find_messages(path):
            place = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
            print('%s:%d\t%s\t%s' % (place, message.line, message.function or '-', message.text.replace('\n', '\\n')))


if __name__ == '__main__':
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
