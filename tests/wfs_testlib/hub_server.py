# SPDX-License-Identifier: MIT
"""The Hugging Face Hub as a behaviour of BadServer: small files are sent, large ones are elsewhere."""
import re
import urllib.parse

from .bad_server import honest, redirect

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
