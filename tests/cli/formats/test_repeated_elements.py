# SPDX-License-Identifier: MIT
"""A view that shows stored elements many times over: its numbers are those of all that it shows, for the price of what is stored."""
import json
import math

import numpy
import pytest

from wfs_testlib import bounds
from wfs_testlib.program import EXIT_FOUND, EXIT_UNSUPPORTED, weightfs
from wfs_testlib.pth import checkpoint, dictionary, get, name, put, storage, tensor

STORED = numpy.array([1, numpy.nan, -2, 0, numpy.inf, 5.5, -numpy.inf, 0, 3, 2], '<f4')
VIEWS = {
    'rows': ((300, 10), (0, 1), 0),
    'columns': ((10, 300), (1, 0), 0),
    'both': ((30, 5, 20), (0, 2, 0), 1),
    'one element': ((50, 60), (0, 0), 5),
    'ones among them': ((1, 400, 1, 10), (7, 0, 0, 1), 0),
    'few windows': ((4, 7), (1, 1), 0),
    'a transposed matrix': ((5, 2), (1, 5), 0),
    'turned': ((2, 500, 5), (5, 0, 1), 0),
}


def shown(stored, size, stride, offset):
    return numpy.lib.stride_tricks.as_strided(stored[offset:], size, [4 * n for n in stride])


def write(path, stored, size, stride, offset):
    of = storage(numel=len(stored))
    path.write_bytes(checkpoint(dictionary(w=tensor(of, offset, size, stride)), r0=stored.tobytes()))
    return path


def judge_stats(path, array):
    """Compares what `show` and `check` say with numpy."""
    found = json.loads(weightfs('show', '--json', path, 'w').stdout)['tensors'][0]
    finite = array[numpy.isfinite(array)].astype('f8')
    stats = found['stats']
    assert found['n_elems'] == array.size and stats['finite'] == finite.size
    assert stats['zero'] == (finite == 0).sum() and stats['nan'] == numpy.isnan(array).sum()
    assert stats['positive_inf'] == (array == numpy.inf).sum() and stats['negative_inf'] == (array == -numpy.inf).sum()
    if finite.size:
        assert stats['min'] == finite.min() and stats['max'] == finite.max()
        assert math.isclose(stats['mean'], finite.mean(), abs_tol=1e-9) and math.isclose(stats['std'], finite.std(), abs_tol=1e-9)
    if found['histogram']:
        assert sum(found['histogram']) == finite.size
        assert found['histogram'] == numpy.histogram(finite, len(found['histogram']))[0].tolist()
    n_bad = numpy.isnan(array).sum()
    findings = json.loads(weightfs('check', '--values', '--json', path, code=None).stdout)['sources'][0]['findings']
    texts = [finding['text'] for finding in findings]
    assert not n_bad or any('%d of %d elements ' % (n_bad, array.size) in text and ' NaN, first at ' in text for text in texts), texts


@pytest.mark.parametrize('view', VIEWS.values(), ids=VIEWS)
def test_statistics_count_every_element_as_often_as_it_is_shown(folder, view):
    judge_stats(write(folder / 'a.pth', STORED, *view), shown(STORED, *view))


@pytest.mark.parametrize('size, stride', [((200, 100), (1, 1)), ((90, 110), (2, 1)), ((40, 30, 50), (1, 3, 1)), ((60, 70, 2), (1, 1, 0))])
def test_statistics_of_sliding_windows(folder, size, stride):
    stored = numpy.random.default_rng(1).integers(-9, 9, 1000).astype('<f4')
    stored[::7] = numpy.nan
    judge_stats(write(folder / 'a.pth', stored, size, stride, 3), shown(stored, size, stride, 3))


@pytest.mark.parametrize('view', [*VIEWS.values(), ((100, 5), (1, 1), 0), ((90, 90), (1, 1), 2)], ids=lambda view: '%s-%s' % view[:2])
def test_differences_count_every_element_as_often_as_it_is_shown(folder, view):
    stored = numpy.concatenate([STORED, numpy.arange(300, dtype='<f4')])
    other = stored.copy()
    other[[5, 7, 9]] = 100, numpy.nan, 1
    a, b = write(folder / 'a.pth', stored, *view), write(folder / 'b.pth', other, *view)
    one, two = shown(stored, *view), shown(other, *view)
    n_changed = int((~((one == two) | (numpy.isnan(one) & numpy.isnan(two)))).sum())
    found = json.loads(weightfs('diff', '--json', a, b, code=EXIT_FOUND if n_changed else 0).stdout)
    assert [change['changed'] for change in found['changed']] == [n_changed][:n_changed]


def test_views_that_repeat_other_axes_are_compared(folder):
    rows = write(folder / 'a.pth', numpy.arange(50, dtype='<f4'), (50, 50), (0, 1), 0)
    columns = write(folder / 'b.pth', numpy.arange(50, dtype='<f4'), (50, 50), (1, 0), 0)
    found = json.loads(weightfs('diff', '--json', rows, columns, code=EXIT_FOUND).stdout)['changed'][0]
    assert found['compared'] == 2500 and found['changed'] == 2450 and found['max_abs'] == 49


def test_views_too_large_to_be_compared_are_refused_with_the_reason(folder):
    stored = numpy.arange(4, dtype='<f4')
    rows = write(folder / 'a.pth', stored, (1 << 20, 1 << 20, 4), (0, 0, 1), 0)
    other = write(folder / 'b.pth', stored, (1 << 20, 1 << 20, 4), (0, 0, 1), 0)
    weightfs('diff', '--exact', rows, other)
    sliding = write(folder / 'c.pth', numpy.zeros(1 << 21, '<f4'), (1 << 20, 1 << 20), (1, 1), 0)
    fixed = write(folder / 'd.pth', numpy.zeros(1 << 21, '<f4'), (1 << 20, 1 << 20), (1, 0), 0)
    assert "'w'" in (error := weightfs('diff', sliding, fixed, code=EXIT_UNSUPPORTED).error) and '--large' in error


def write_views(path, stored, views):
    """Views of one storage: {key: (offset, size, stride)}."""
    kept = storage(numel=len(stored)) + put(9)
    tensors = {key: tensor(get(9) if i else kept, *view) for i, (key, view) in enumerate(views.items())}
    path.write_bytes(checkpoint(dictionary(**tensors), r0=stored.tobytes()))
    return path


N_SHIFTED = 1200  # views of nearly all of it
LOOKS = {'check': ['check', '--values'], 'diff': ['diff', '--exact'], 'plan': ['plan', '--values', '--cast=F16']}


def run(look, path, *more, code=0):
    return weightfs(*look, *more, *([path] * (2 if look[0] == 'diff' else 1)), code=code)


@pytest.mark.parametrize('look', LOOKS.values(), ids=LOOKS)
def test_views_that_overlap_too_often_are_refused_unless_allowed(folder, look):
    n = 1 << 16
    views = {'w%d' % i: (i, (n - i,), (1,)) for i in range(N_SHIFTED)}
    path = write_views(folder / 'a.pth', numpy.ones(n, '<f4'), views)
    refused = run(look, path, code=EXIT_UNSUPPORTED)
    assert '\n' not in refused.error and str(path) in refused.error and "'w" in refused.error
    assert refused.error.endswith('choose fewer with --include=REGEX, or allow it with --large')
    assert str(path.stat().st_size) in refused.error or look[0] == 'diff'
    run(look, path, '--large')
    run(look, path, '--include=w1.')


@pytest.mark.parametrize('look', ['patch', 'sum'])
def test_views_that_overlap_too_often_are_not_read_as_they_are_shown(folder, look):
    n = 1 << 16
    path = write_views(folder / 'a.pth', numpy.ones(n, '<f4'), {'w%d' % i: (i, (n - i,), (1,)) for i in range(N_SHIFTED)})
    command = [look, path] if look == 'sum' else ['patch', 'make', path, path, folder / 'p']
    refused = weightfs(*command, code=EXIT_UNSUPPORTED).error
    assert "overlap so often" in refused and "'w" in refused and str(path) in refused and not (folder / 'p').exists()
    assert refused.endswith('choose fewer with --include=REGEX, or allow it with --large')
    more = [] if look == 'sum' else ['--overwrite']
    weightfs(*command, '--include=w1.')
    weightfs(*command, '--large', *more)
    few = write_views(folder / 'b.pth', numpy.ones(n, '<f4'), {'w%d' % i: (0, (n,), (1,)) for i in range(N_SHIFTED)})
    weightfs(*[few if part == path else part for part in command], *more)


@pytest.mark.parametrize('look', ['check', 'diff', 'plan', 'patch', 'sum'])
def test_views_of_few_elements_far_apart_are_looked_at(folder, look):
    """What lies between them is read, which takes a fraction of the time of looking at it."""
    path = bounds.SLOW / 'overlapping-sparse.pth'
    commands = {'patch': ['patch', 'make', path, path, folder / 'p'], 'sum': ['sum', path]}
    assert [code for code, *_ in bounds.measure([commands.get(look) or [*LOOKS[look], *([path] * (2 if look == 'diff' else 1))]])] == [0]


@pytest.mark.parametrize('look', ['patch', 'sum'])
def test_what_is_read_for_few_elements_counts_in_sums(folder, look):
    """Each element is a read of its own."""
    n = 1 << 19
    of = storage(cls=name('torch', 'ByteStorage'), numel=n) + put(9)
    tensors = {'w%d' % i: tensor(get(9) if i else of, i % 2048, (252 - i // 2048,), (2060,)) for i in range(24000)}
    (path := folder / 'a.pth').write_bytes(checkpoint(dictionary(**tensors), r0=bytes(n)))
    command = ['sum', path] if look == 'sum' else ['patch', 'make', path, path, folder / 'p']
    assert 'overlap so often' in weightfs(*command, code=EXIT_UNSUPPORTED).error


def test_many_views_are_not_shown_at_once_unless_allowed(folder):
    n = 1 << 16
    views = {'w%d' % i: (i, (n - i,), (1,)) for i in range(N_SHIFTED)}
    path = write_views(folder / 'a.pth', numpy.ones(n, '<f4'), views)
    for more in [], ['--json'], ['--percentiles']:
        refused = weightfs('show', *more, path, *views, code=EXIT_UNSUPPORTED)
        assert '\n' not in refused.error and str(path) in refused.error and refused.stdout == ''
        assert refused.error.endswith('; show fewer KEYs at once, or allow it with --large')
    assert weightfs('show', '--large', path, *views).stdout.count('key:') == N_SHIFTED
    assert weightfs('show', path, *list(views)[:50]).stdout.count('key:') == 50
    assert weightfs('show', '--slice=0', path, *views).stdout.count('key:') == N_SHIFTED


def test_one_tensor_that_takes_too_long_is_refused_with_what_helps(folder):
    n = 513 << 14
    of = storage(cls=name('torch', 'ByteStorage'), numel=n)
    (path := folder / 'a.pth').write_bytes(checkpoint(dictionary(w=tensor(of, 0, (1 << 14, 1 << 13), (512, 1))), r0=bytes(n)))
    refused = weightfs('show', path, 'w', code=EXIT_UNSUPPORTED).error
    assert refused.endswith('bytes; --large allows it') and str(path) in refused


@pytest.mark.parametrize('look', LOOKS.values(), ids=LOOKS)
def test_views_that_are_equal_or_apart_are_never_too_many(folder, look):
    n = 1 << 16
    views = {'w%d' % i: (0, (n,), (1,)) for i in range(N_SHIFTED)}
    views.update(('x%d' % i, (n // 256 * i, (n // 256,), (1,))) for i in range(256))
    views.update(('y%d' % i, (i, (256, 256 // 8), (256, 8))) for i in range(8))
    views['z'] = (0, (256, 256), (1, 256))
    run(look, write_views(folder / 'a.pth', numpy.ones(n, '<f4'), views))


def test_views_that_are_equal_all_have_their_counts(folder):
    """Those of three groups, some of which differ in nothing but offset, stride or shape."""
    stored = numpy.arange(60, dtype='<f4')
    other = stored.copy()
    stored[[3, 10, 30]] = numpy.nan, numpy.inf, 1e30
    other[[7, 31]] = numpy.nan
    kinds = [(0, (20,), (1,)), (1, (20,), (1,)), (0, (20,), (2,)), (0, (4, 5), (5, 1)), (0, (5, 4), (1, 5))]
    views = {'w%d' % i: kinds[i % 7 % 5] for i in range(50)}
    a = write_views(folder / 'a.pth', stored, views)
    b = write_views(folder / 'b.pth', other, views)
    findings = [finding['text'] for finding in json.loads(weightfs('check', '--values', '--json', a, code=EXIT_FOUND).stdout)['sources'][0]['findings']]
    changed = {row['key']: row['changed'] for row in json.loads(weightfs('diff', '--json', a, b, code=EXIT_FOUND).stdout)['changed']}
    cast = {row['key']: row['overflow'] for row in json.loads(weightfs('plan', '--json', '--values', '--cast=F16', a).stdout)['cast']}
    for key, (offset, size, stride) in views.items():
        one, two = shown(stored, size, stride, offset), shown(other, size, stride, offset)
        nan = int(numpy.isnan(one).sum())
        assert (any("'%s': %d of 20 elements" % (key, nan) in text and ' NaN, first at ' in text for text in findings)) == bool(nan)
        assert changed[key] == int(((one != two) & ~(numpy.isnan(one) & numpy.isnan(two))).sum())
        assert cast[key] == int((numpy.abs(one[numpy.isfinite(one)]) > 65520).sum())


def test_casts_of_repeated_elements_are_counted_as_often_as_they_are_shown(folder):
    stored = numpy.array([1, 1e30, numpy.nan, -1e30], '<f4')
    path = write(folder / 'a.pth', stored, (1 << 20, 1 << 20, 4), (0, 0, 1), 0)
    cast, = json.loads(weightfs('plan', '--json', '--values', '--cast=F16', path).stdout)['cast']
    assert (cast['overflow'], cast['nan']) == (2 << 40, 1 << 40)


def test_two_to_the_forty_elements_of_sixteen_bytes(folder):
    path = bounds.SLOW / 'repeated-rows.pth'
    stats = json.loads(weightfs('show', '--json', path, 'w').stdout)['tensors'][0]['stats']
    assert stats['nan'] == stats['positive_inf'] == 1 << 40 and stats['finite'] == 1 << 41 and stats['mean'] == -.5


def test_elements_of_one_byte_in_windows(folder):
    lines = numpy.arange(4000) % 251
    of = storage(cls=name('torch', 'ByteStorage'), numel=4000)
    (folder / 'a.pth').write_bytes(checkpoint(dictionary(w=tensor(of, 0, (3000, 1000), (1, 1))), r0=lines.astype('u1').tobytes()))
    array = numpy.lib.stride_tricks.as_strided(lines.astype('u1'), (3000, 1000), (1, 1))
    stats = json.loads(weightfs('show', '--json', folder / 'a.pth', 'w').stdout)['tensors'][0]['stats']
    assert stats['zero'] == (array == 0).sum() and math.isclose(stats['mean'], array.mean()) and math.isclose(stats['std'], array.std())
