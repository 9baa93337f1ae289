# SPDX-License-Identifier: MIT
"""The Hugging Face Hub as a behaviour of BadServer: small files are sent, large ones are elsewhere."""
import hashlib
import json
import os
import re
import urllib.parse

from .bad_server import MODIFIED, honest, http_date, redirect

COMMIT = '0123456789abcdef0123456789abcdef01234567'
PATH = re.compile(r'/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)')


def hub(repository, files, token=None, store=None, revisions=('main', COMMIT), has_access=True):
    """One repository, private with a token. Files are names, with the content of the server, or {name: content}. With a store, a URL,
    they are redirected there."""
    def behave(exchange):
        match = PATH.fullmatch(exchange.request.path)
        sent = exchange.request.headers.get('authorization')
        name, revision, path = (urllib.parse.unquote(part) for part in match.groups()) if match else (None, None, None)
        if token is not None and sent != 'Bearer ' + token:
            exchange.answer('401 Unauthorized', b'no', X_Error_Code='RepoNotFound')
        elif not has_access:
            exchange.answer('403 Forbidden', b'no', X_Error_Code='GatedRepo')
        elif name != repository or revision not in revisions or path not in files:
            code = 'RepoNotFound' if name != repository else 'RevisionNotFound' if revision not in revisions else 'EntryNotFound'
            exchange.answer('404 Not Found', b'not found', X_Error_Code=code)
        elif store is not None:
            redirect(store + '/' + path + '?sig=tok3n', X_Repo_Commit=COMMIT, X_Linked_Size=1)(exchange)
        else:
            exchange.extra = {'X_Repo_Commit': COMMIT}
            exchange.content = files[path] if isinstance(files, dict) else exchange.content
            honest(exchange)
    return behave


def git_hash(content):
    return hashlib.sha1(b'blob %d\0' % len(content) + content).hexdigest()


class Hub:
    """Repositories with revisions, as far as huggingface_hub and weightfs ask for them: {'org/name': {commit: {path: content}}}. Files with
    one of the endings LARGE are elsewhere, behind a redirect, and their ETag is their SHA-256."""
    LARGE = ('.safetensors', '.bin', '.distcp', '.metadata')

    def __init__(self, repositories, main):
        self.repositories, self.main = repositories, main

    def commit_of(self, name, revision):
        return self.main if revision == 'main' else revision if revision in self.repositories[name] else None

    def __call__(self, exchange):
        path = urllib.parse.unquote(exchange.request.path.partition('?')[0])
        if path.startswith('/store/'):
            exchange.content = bytes.fromhex('') if exchange.request.method == 'HEAD' else self.stored(path.removeprefix('/store/'))
            return self.send(exchange, {'ETag': '"%s"' % path.removeprefix('/store/')})
        match = re.fullmatch(r'/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)(/.*)?', path)
        if match:
            return self.describe(exchange, *match.groups()[:3])
        match = PATH.fullmatch(path)
        commit = match and match[1] in self.repositories and self.commit_of(match[1], match[2])
        if not commit:
            return exchange.answer('404 Not Found', b'', X_Error_Code='RevisionNotFound' if match and match[1] in self.repositories else 'RepoNotFound')
        content = self.repositories[match[1]][commit].get(match[3])
        if content is None:
            return exchange.answer('404 Not Found', b'', X_Error_Code='EntryNotFound', X_Repo_Commit=commit)
        if not match[3].endswith(self.LARGE):
            exchange.content = content
            return self.send(exchange, {'ETag': '"%s"' % git_hash(content), 'X-Repo-Commit': commit})
        digest = hashlib.sha256(content).hexdigest()
        exchange.head('302 Found', {'Location': exchange.server.origin.replace('127.0.0.1', 'localhost') + '/store/' + digest, 'X-Repo-Commit': commit, 'Content-Length': 0,
                                    'X-Linked-ETag': '"%s"' % digest, 'X-Linked-Size': len(content), 'ETag': '"%s"' % digest})

    def stored(self, digest):
        return next(content for commits in self.repositories.values() for files in commits.values() for content in files.values()
                    if hashlib.sha256(content).hexdigest() == digest)

    def describe(self, exchange, name, kind, revision):
        commit = self.commit_of(name, revision)
        files = self.repositories[name][commit]
        tree = [{'type': 'file', 'path': path, 'size': len(content), 'oid': git_hash(content)} for path, content in files.items()]
        info = {'id': name, 'sha': commit, 'siblings': [{'rfilename': path} for path in files], 'private': False, 'tags': []}
        exchange.answer('200 OK', json.dumps(tree if kind == 'tree' else info).encode(), Content_Type='application/json')

    @staticmethod
    def send(exchange, headers):
        content = exchange.content
        headers = {**headers, 'Date': http_date(0), 'Last-Modified': MODIFIED, 'Accept-Ranges': 'bytes'}
        if exchange.range is None or exchange.request.method == 'HEAD':
            exchange.head('200 OK', {**headers, 'Content-Length': len(content)})
            return exchange.send(b'' if exchange.request.method == 'HEAD' else content)
        first, last = exchange.range
        exchange.head('206 Partial Content', {**headers, 'Content-Length': last + 1 - first, 'Content-Range': 'bytes %d-%d/%d' % (first, last, len(content))})
        exchange.send(exchange.wanted())


def keep(cache, name, commit, files, main=True):
    """What snapshot_download leaves, as huggingface_hub lays it out; test_hub_cache.py compares that with the library's own."""
    entry = cache / ('models--' + name.replace('/', '--'))
    for path, content in files.items():
        blob = entry / 'blobs' / (hashlib.sha256(content).hexdigest() if path.endswith(Hub.LARGE) else git_hash(content))
        link = entry / 'snapshots' / commit / path
        for one in (blob, link):
            one.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if main:
        (entry / 'refs').mkdir(exist_ok=True)
        (entry / 'refs/main').write_text(commit)
    return entry
