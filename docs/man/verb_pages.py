#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes the manual pages of the verbs, weightfs-VERB.1, from weightfs.1 and the table of verbs.

Usage: verb_pages.py MAIN_C WEIGHTFS_1 FOLDER

A page consists of what weightfs.1 has of a verb: its synopsis, its item in the list of verbs, and its examples. An
option that is described by another one, of a verb or of mounts, gets that description; a section that only weightfs(1)
has is named as such."""
import pathlib
import re
import sys

PAGE = r'''.\" SPDX-License-Identifier: MIT
.\" Made by verb_pages.py from weightfs.1.
{date}
.Dt WEIGHTFS-{capitals} 1
.Os
.Sh NAME
.Nm weightfs-{verb}
.Nd {summary}
.Sh SYNOPSIS
{synopsis}.Sh DESCRIPTION
{description}.Sh OPTIONS
{options}.Pp
.Fl -color Ns = Ns Ar WHEN
and
.Fl -help
are accepted by every verb.
.Xr weightfs 1
describes them, and how output differs between terminals and pipes.
.Sh EXIT STATUS
0 on success; all codes are listed in
.Xr weightfs 1 .
.Sh EXAMPLES
{examples}.Sh SEE ALSO
.Xr weightfs 1
'''
ALSO = '''.Pp
As every verb that reads a checkpoint:
{common}.Pp
The view options, which rename, filter and convert what is read, are listed under
.Sx VIEWS .
'''
LIST = re.compile(r'^\.Bl -tag.*?\n(?:(?:^\.Bl .*?^\.El\n)|.)*?^\.El\n', re.M | re.S)


def section(page, start, end):
    """What is between two lines."""
    return page.split('\n%s\n' % start, 1)[1].split('\n%s' % end, 1)[0] + '\n'


def items(text, macro):
    """{name: description} of the options in a list."""
    return dict(re.findall(r'^\.It %s([\w-]+)[^\n]*\n(.*?)(?=^\.It |^\.El)' % macro, text, re.M | re.S))


class Manual:
    """The parts of weightfs.1."""

    def __init__(self, page):
        self.date = re.search(r'^\.Dd .*', page, re.M)[0]
        self.synopsis = {}
        for block, verb in re.findall(r'(^\.Nm\n\.Cm (\w+).*?)(?=^\.Nm\n|\Z)', section(page, '.Sh SYNOPSIS', '.Sh'), re.M | re.S):
            self.synopsis[verb] = self.synopsis.get(verb, '') + block
        verbs, common = section(page, '.Ss Verbs', '.Sh VIEWS').split('.Pp\nEvery verb that reads a\n', 1)
        self.common = LIST.search(common)[0]
        self.verbs = dict(re.findall(r'^\.It Cm (\w+) [^\n]*\n(.*?)(?=^\.It Cm \w+ |\Z)', verbs, re.M | re.S))
        last = list(self.verbs)[-1]
        self.verbs[last] = self.verbs[last].removesuffix('.El\n')
        self.mount_options = items(section(page, '.Sh MOUNTING', '.Sh'), 'Cm ')
        self.examples = dict(re.findall(r'^\.Ss (\w+)\n(.*?)(?=^\.Ss |\Z)', section(page, '.Sh EXAMPLES', '.Sh'), re.M | re.S))

    def description_of(self, name, text):
        """The description of an option, of another one where it only refers to that."""
        verb = re.fullmatch(r'As(?: for)?\n\.Cm (\w+)(?: Fl -[\w-]+)? \.\n', text)
        if verb:
            return self.description_of(name, items(self.verbs[verb[1]], 'Fl -')[name])
        if re.fullmatch(r'As the mount option(\.|\n\.Cm \w+ \.)\n', text):
            return self.mount_options[name]
        return text

    def complete(self, options):
        return re.sub(r'^(\.It Fl -([\w-]+)[^\n]*\n)(.*?)(?=^\.It |^\.El)',
                      lambda match: match[1] + self.description_of(match[2], match[3]), options, flags=re.M | re.S)

    def page(self, verb, summary):
        text = self.verbs[verb]
        found = LIST.search(text)
        options = self.complete(found[0]) if found else ''
        description = text.replace(found[0], '') if found else text
        if re.search(r'^\.Ar (.* )?(SOURCE|A B)\b', self.synopsis[verb], re.M):
            options += ALSO.format(common=self.common)
        page = PAGE.format(date=self.date, verb=verb, capitals=verb.upper(), summary=summary, synopsis=self.synopsis[verb],
                           description=description, options=options, examples=self.examples[verb])
        page = page.replace('.Sh OPTIONS\n.Pp\n', '.Sh OPTIONS\n')
        page = re.sub(r'^\.Nm(?=\n| Cm )', '.Nm weightfs', page, flags=re.M)
        return re.sub(r'^\.Sx (\w+)(.*)', r'.Sy \1\nin\n.Xr weightfs 1\2', page, flags=re.M)


def main(main_c, weightfs_1, folder):
    manual = Manual(pathlib.Path(weightfs_1).read_text(encoding='utf-8'))
    for verb, summary in re.findall(r'\{"(\w+)", &verb_\w+, "(.*)"\}', pathlib.Path(main_c).read_text(encoding='utf-8')):
        (pathlib.Path(folder) / ('weightfs-%s.1' % verb)).write_text(manual.page(verb, summary), encoding='utf-8')


if __name__ == '__main__':
    main(*sys.argv[1:])
