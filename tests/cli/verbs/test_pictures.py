# SPDX-License-Identifier: MIT
"""`report` and `map`: pages and pictures, read by Python's parsers and by a browser; numpy is the judge of the numbers."""
import html.parser
import json
import os
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree
import zlib

import numpy
import pytest

from wfs_testlib import gguf, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_USAGE, weightfs
from wfs_testlib.terminal import screen

HOSTILE = ['a</script><script>alert(1)</script>', 'b<script>', 'c"onload="x', "d'&amp;<b>", 'e\x1b[31m\x01\x7f', 'f\u202e\u2028', ']]>-->', '<!--<script>']
VOID = {'meta', 'input', 'br', 'link', 'img', 'hr', 'col', 'wbr'}
N_BINS, N_SAMPLE = 40, 64 * 48 * 256
BROWSER = shutil.which('chromium')


def f32(array):
    return ('F32', list(array.shape), array.astype('<f4').tobytes())


def layers(n, change=0.0):
    """A small decoder; with a change, that of the layer's number times it in one module."""
    generator = numpy.random.default_rng(n)
    tensors = {'embed.weight': f32(generator.standard_normal((50, 8)))}
    for i in range(n):
        for name, shape in (('mlp.up', (16, 8)), ('mlp.down', (8, 16)), ('norm', (8,))):
            array = generator.standard_normal(shape).astype('<f4')
            if name == 'mlp.up':
                array = array * numpy.float32(1 + change * i)
            tensors['model.layers.%d.%s.weight' % (i, name)] = f32(array)
    return tensors


class Page(html.parser.HTMLParser):
    """Elements in order, each closed where it must be, with the text of scripts, titles and the rows of tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.scripts, self.tables, self.attributes = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attr) for attr in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == 'script':
            self.scripts.append('')
        if tag == 'table':
            self.tables.append((dict(attrs)['class'].split()[0], []))
        if tag == 'tr':
            self.tables[-1][1].append([])
        if tag in ('td', 'th'):
            self.tables[-1][1][-1].append('')

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ['script']:
            self.scripts[-1] += data
        if 'td' in self.open or 'th' in self.open:
            self.tables[-1][1][-1][-1] += data

    def data(self):
        return {tensor['key']: tensor for tensor in json.loads(self.scripts[0])['tensors']}

    def rows(self, name):
        for table, rows in self.tables:
            if table == name:
                return rows[0], rows[1:]
        return None


def report(*words):
    return Page(weightfs('report', *words).stdout)


def tiles(svg):
    """(class, title, x, y, width, height) of each tile."""
    space = '{http://www.w3.org/2000/svg}'
    for group in xml.etree.ElementTree.fromstring(svg).iter(space + 'g'):
        if group.get('class', '').startswith('tile'):
            rect = group.find(space + 'rect')
            yield (group.get('class').split()[1], group.find(space + 'title').text, *(float(rect.get(name)) for name in ('x', 'y', 'width', 'height')))


# ---- numbers ----

def test_statistics_and_histograms_are_those_of_numpy(folder):
    generator = numpy.random.default_rng(7)
    arrays = {'a': generator.standard_normal((30, 40)).astype('<f4'), 'b': generator.integers(-100, 100, 999).astype('<f4'),
              'c': numpy.array([1, numpy.nan, numpy.inf, -numpy.inf, 0, -5], '<f4'), 'd': numpy.full(7, 3, '<f4'), 'e': numpy.zeros((0, 3), '<f4')}
    page = report(st.write(folder / 'x', {key: f32(array) for key, array in arrays.items()}))
    for key, array in arrays.items():
        shown, finite = page.data()[key], array[numpy.isfinite(array)].astype('f8')
        assert (shown['dtype'], shown['shape'], shown['bytes']) == ('F32', list(array.shape), array.nbytes)
        stats = shown['stats']
        assert (stats['finite'], stats['zero'], stats['nan']) == (finite.size, int((array == 0).sum()), int(numpy.isnan(array).sum()))
        assert (stats['positive_inf'], stats['negative_inf']) == (int((array == numpy.inf).sum()), int((array == -numpy.inf).sum()))
        if finite.size:
            assert (stats['min'], stats['max']) == (finite.min(), finite.max())
            assert numpy.allclose([stats['mean'], stats['std']], [finite.mean(), finite.std()], rtol=1e-9, atol=1e-12)
        if finite.size == 0 or finite.min() == finite.max():
            assert 'histogram' not in shown
            continue
        bins = ((finite - finite.min()) / (finite.max() - finite.min()) * N_BINS).astype(int).clip(max=N_BINS - 1)
        assert shown['histogram'] == numpy.bincount(bins, minlength=N_BINS).tolist()
        assert shown['sampled'] == array.size


@pytest.mark.parametrize('code', ['F32', 'BF16', 'I8'])
def test_a_histogram_of_a_large_tensor_is_of_elements_taken_evenly(folder, code):
    """The values grow with their places, so a sample of one end would not fill all bins."""
    n = 1 << 20
    ramp = numpy.linspace(-1, 1, n).astype('<f4')
    data = {'F32': ramp.tobytes(), 'BF16': ramp.view('<u2')[1::2].tobytes(), 'I8': (ramp * 100).astype('i1').tobytes()}[code]
    shown = report(st.write(folder / 'x', {'w': (code, [n], data)})).data()['w']
    assert shown['sampled'] == N_SAMPLE * 8 // st.BITS[code]
    assert sum(shown['histogram']) == shown['sampled']
    if code == 'F32':
        assert min(shown['histogram']) > 0.5 * shown['sampled'] / N_BINS and max(shown['histogram']) < 1.6 * shown['sampled'] / N_BINS
    else:
        assert min(shown['histogram']) >= 0 and sum(count > 0 for count in shown['histogram']) >= 36


def test_a_histogram_of_blocks_is_of_the_numbers_that_they_stand_for(folder):
    """Small and sampled: Q8_0, each block with a scale of its own."""
    path, generator = folder / 'x.gguf', numpy.random.default_rng(3)
    numbers, tensors = {}, []
    for name, rows in (('small', 4), ('large', 16000)):
        scales, codes = generator.uniform(0.5, 1, (rows, 1)).astype('<f2'), generator.integers(-127, 128, (rows, 32), dtype='i1')
        numbers[name] = scales.astype('f8') * codes
        tensors.append((name, 'Q8_0', [rows, 32], numpy.concatenate([scales.view('i1').reshape(rows, 2), codes], axis=1).tobytes()))
    path.write_bytes(gguf.Writer().file((), tensors))
    for name, array in numbers.items():
        shown = report(path).data()[name]
        bins = ((array - array.min()) / (array.max() - array.min()) * N_BINS).astype(int).clip(max=N_BINS - 1).ravel()
        shares = numpy.array(shown['histogram']) / shown['sampled']
        assert sum(shown['histogram']) == shown['sampled'] == min(array.size, N_SAMPLE // 4)
        assert (shown['stats']['min'], shown['stats']['max']) == (array.min(), array.max())
        assert abs(shares - numpy.bincount(bins, minlength=N_BINS) / array.size).max() <= (0 if name == 'small' else 0.004)


def test_tied_tensors_have_the_same_numbers(folder):
    array = numpy.arange(12, dtype='<f4')
    page = report(st.write(folder / 'x', {'a': f32(array), 'b': f32(array)}))
    assert page.data()['a']['stats'] == page.data()['b']['stats'] and page.data()['a']['stats']['max'] == 11


def test_what_has_no_numbers_is_listed_without_them(folder):
    page = report(st.write(folder / 'x', {'c': ('C64', [2], bytes(16)), 'w': f32(numpy.arange(3))}))
    assert page.data()['c']['stats'] is None
    heading, rows = page.rows('tensors')
    assert [row[0] for row in rows] == ['c', 'w'] and rows[0][heading.index('mean')] == '' and rows[1][heading.index('mean')] == '1'


# ---- two checkpoints ----

def test_changes_are_those_of_numpy(folder):
    a, b = layers(4), layers(4, change=0.25)
    a['old'] = b['new'] = f32(numpy.arange(4))
    a['shape'], b['shape'] = f32(numpy.zeros(4)), f32(numpy.zeros(5))
    page = report(st.write(folder / 'a', a), st.write(folder / 'b', b))
    heading, rows = page.rows('tensors')
    shown = {row[0]: dict(zip(heading, row, strict=True)) for row in rows}
    assert shown.keys() == a.keys() | b.keys()
    for key, row in shown.items():
        change = page.data()[key]['change']
        if key not in a or key not in b:
            assert row['change'] == change['state'] == ('only in B' if key not in a else 'only in A')
        elif a[key][1] != b[key][1]:
            assert row['change'] == 'changed' and row['relative'] == '' and change['relative'] is None
        else:
            x, y = (numpy.frombuffer(one[key][2], '<f4').astype('f8') for one in (a, b))
            assert row['change'] == change['state'] == ('equal' if (x == y).all() else 'changed')
            assert numpy.isclose(change['relative'], numpy.linalg.norm(x - y) / numpy.linalg.norm(x), rtol=1e-9, atol=0)
            assert numpy.isclose(float(row['relative']), change['relative'], rtol=1e-5)
            assert change['max_abs'] == abs(x - y).max()


def test_the_heat_map_has_a_row_for_each_layer_and_a_column_for_each_module(folder):
    page = report(st.write(folder / 'a', layers(12)), st.write(folder / 'b', layers(12, change=0.25)))
    heading, rows = page.rows('heat')
    assert heading == ['layer', 'mlp.down.weight', 'mlp.up.weight', 'norm.weight']
    assert [row[0] for row in rows] == [str(i) for i in range(12)]
    for i, row in enumerate(rows):
        assert row[1] == row[3] == '=' and (row[2] == '=' if i == 0 else abs(float(row[2]) / (0.25 * i) - 1) < 0.05)
    assert report(st.write(folder / 'c', layers(12))).rows('heat') is None


def test_the_colour_of_a_tile_is_the_change(folder):
    a = {key: f32(numpy.ones(100)) for key in 'abcdefg'}
    b = {key: f32(numpy.ones(100) * (1 + change)) for key, change in zip('abcdef', (0, 1e-5, 1e-2 / 2, 1e-1 / 2, 0.5, 3), strict=True)}
    b['h'], b['g'] = f32(numpy.ones(100)), ('I32', [10, 10], bytes(400))
    a['i'] = f32(numpy.ones(100))
    svg = weightfs('map', st.write(folder / 'a', a), st.write(folder / 'b', b)).stdout
    assert {title.split('\n')[0]: colour for colour, title, *_ in tiles(svg)} == {
        'a': 'c0', 'b': 'c1', 'c': 'c3', 'd': 'c4', 'e': 'c5', 'f': 'c6', 'g': 'cx', 'h': 'ca', 'i': 'cr'}


# ---- the map ----

def test_areas_are_parameters(folder):
    sizes = [1, 5, 10, 100, 1000, 2000, 700, 700, 700]
    path = st.write(folder / 'x', {'t%d' % i: ('U8', [n], bytes(n)) for i, n in enumerate(sizes)} | {'none': ('U8', [0, 3], b'')})
    found = {int(title.split('\n')[0][1:]): (x, y, w, h) for _, title, x, y, w, h in tiles(weightfs('map', path).stdout) if title.startswith('t')}
    whole = sum(w * h for *_, w, h in found.values())
    for i, (_, _, w, h) in found.items():
        assert abs(w * h - whole * sizes[i] / sum(sizes)) < 1 + 0.05 * w * h + 0.1 * (w + h)
    assert len(found) == len(sizes)
    boxes = list(found.values())
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and y >= 28 and x + w <= 1200.2 and y + h <= 708.2
        for p, q, r, s in boxes[:i]:
            assert min(x + w, p + r) - max(x, p) < 0.2 or min(y + h, q + s) - max(y, q) < 0.2


def test_dtypes_have_colours_and_small_tensors_are_one_tile(folder):
    tensors = {'big.%d' % i: (code, [4096], bytes(4096 * st.BITS[code] // 8)) for i, code in enumerate(('F32', 'F16', 'I8'))}
    tensors |= {'small.%d.%d' % (i // 100, i % 100): ('U8', [1], b'x') for i in range(3000)}
    svg = weightfs('map', st.write(folder / 'x', tensors)).stdout
    found = list(tiles(svg))
    assert len({colour for colour, *_ in found}) == 4
    assert sum(int(re.match(r'(\d+) small tensor', title)[1]) if 'small tensor' in title else 1 for _, title, *_ in found) == len(tensors)
    assert len(found) < 1500
    assert all(code + '</text>' in svg for code in ('F32', 'F16', 'I8', 'U8'))


def test_deep_keys_do_not_end_the_program(folder):
    key = 'a'
    tensors = {}
    for i in range(300):
        key += '.m%d' % i
        tensors[key + '.w'] = ('U8', [1 << 10], bytes(1 << 10))
    svg = weightfs('map', st.write(folder / 'x', tensors)).stdout
    assert sum(1 for _ in tiles(svg)) > 5


# ---- names from strangers ----

def test_names_are_text_wherever_they_are(folder):
    tensors = {'x.%d.%s' % (i % 2, key): f32(numpy.arange(100) + i) for i, key in enumerate(HOSTILE * 2)}
    tensors |= {key: f32(numpy.arange(100)) for key in HOSTILE}
    changed = {key: f32(numpy.arange(100) * 2) for key in tensors}
    paths = [st.write(folder / name, one) for name, one in (('<img src=x>.st', tensors), ('b', changed))]
    for words in (paths[:1], paths):
        page = report(*words)
        assert len(page.scripts) == 2 and 'img' not in page.tags and 'b' not in page.tags
        assert not [attribute for attribute in page.attributes if attribute[1].startswith('on')]
        assert page.data().keys() == tensors.keys()
        assert not re.search(r'[\x00-\x09\x0b-\x1f\u2028\u202e]', weightfs('report', *words).stdout)
        svg = weightfs('map', *words).stdout
        assert len(list(tiles(svg))) == len(tensors) and '<script' not in svg


def test_nothing_is_loaded_from_anywhere(folder):
    text = weightfs('report', st.write(folder / 'x', layers(2))).stdout
    page = Page(text)
    assert not {'link', 'img', 'iframe', 'object', 'embed', 'base'} & set(page.tags)
    assert not [value for _, name, value in page.attributes if name in ('src', 'href', 'action', 'xlink:href')]
    assert set(re.findall(r'[a-z]+://[^"\s]*', text)) == {'http://www.w3.org/2000/svg'} and '@import' not in text and 'url(' not in text


def test_300_tensors_take_less_than_a_megabyte(folder):
    tensors = {}
    for i in range(33):
        for name in ('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj', 'self_attn.o_proj', 'mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj', 'input_layernorm',
                     'post_attention_layernorm'):
            tensors['model.layers.%d.%s.weight' % (i, name)] = f32(numpy.random.default_rng(i).standard_normal(5000))
    changed = {key: f32(numpy.frombuffer(data, '<f4') * 1.01) for key, (_, _, data) in tensors.items()}
    paths = [st.write(folder / 'a', tensors), st.write(folder / 'b', changed)]
    assert len(weightfs('report', paths[0]).stdout.encode()) < 800_000
    assert len(weightfs('report', *paths).stdout.encode()) < 1_000_000


@pytest.mark.parametrize('n_equal', [10, 10000])
def test_of_many_tensors_the_largest_are_shown(folder, n_equal):
    """Of equal ones, those that come first."""
    tensors = {'t%d' % i: ('U8', [2 + i // n_equal], bytes(range(2 + i // n_equal % 100)) + bytes(i // n_equal - i // n_equal % 100)) for i in range(6000)}
    page = report(st.write(folder / 'x', tensors))
    assert set(page.data()) == {'t%d' % i for i in (range(1000, 6000) if n_equal == 10 else range(5000))}
    assert len(page.rows('tensors')[1]) == 5000 and page.tags.count('figure') == 400
    assert weightfs('report', folder / 'x').stdout.count(' largest of 6000 tensors.') == 2


# ---- the output ----

def test_a_file_is_replaced_only_if_asked_and_a_checkpoint_never(folder):
    path, output = st.write(folder / 'x.safetensors', layers(1)), folder / 'out.html'
    before = path.read_bytes()
    weightfs('report', path, '-o', output)
    assert output.read_text() == weightfs('report', path).stdout
    output.write_text('mine')
    assert '--overwrite' in weightfs('report', path, '-o', output, code=EXIT_COMMIT).error
    assert output.read_text() == 'mine'
    weightfs('map', '--output=%s' % output, path, '--overwrite')
    assert output.read_text() == weightfs('map', path).stdout
    link = folder / 'link'
    link.hardlink_to(path)
    for target in (path, link):
        assert 'checkpoint itself' in weightfs('report', path, '-o', target, '--overwrite', code=EXIT_COMMIT).error
    assert path.read_bytes() == before
    assert not [name for name in os.listdir(folder) if 'weightfs' in name]


def test_a_page_is_no_more_readable_than_its_checkpoint(folder):
    path, output = st.write(folder / 'x', layers(1)), folder / 'out.html'
    path.chmod(0o600)
    weightfs('report', path, '-o', output)
    assert output.stat().st_mode & 0o777 == 0o600


def test_a_terminal_gets_no_page(folder):
    path = st.write(folder / 'x', layers(1))
    shown = screen('report', path, code=EXIT_USAGE)
    assert '-o report.html' in shown.text and '<' not in shown.text


def test_what_cannot_be_read_leaves_the_old_page(folder):
    path, output = folder / 'x.safetensors', folder / 'out.html'
    output.write_text('old')
    st.write(path, layers(1))
    os.truncate(path, path.stat().st_size - 20)
    weightfs('report', path, '--force', '-o', output, '--overwrite', code=EXIT_DAMAGED)
    assert output.read_text() == 'old'


def test_views_apply_to_both(folder):
    path = st.write(folder / 'x', layers(2))
    page = report(path, path, '--include', 'norm', '--rename', 'model', 'm', '--cast', 'F16')
    assert {key: tensor['dtype'] for key, tensor in page.data().items()} == {'m.layers.%d.norm.weight' % i: 'F16' for i in range(2)}


# ---- a browser ----

def browse(path, *options):
    """What a page is once its scripts have run, and what the console got."""
    if BROWSER is None:
        pytest.skip('there is no chromium')
    run = subprocess.run([BROWSER, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--enable-logging=stderr',
                          '--user-data-dir=%s' % (path.parent / 'profile'), '--virtual-time-budget=3000', *options, 'file://%s' % path],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout, [line for line in run.stderr.splitlines() if 'CONSOLE' in line]


CLICKS = '''<script>
window.addEventListener('load', function () {
  const root = document.querySelectorAll('.wfs-report')[%d];
  const press = function (map, key) { map.dispatchEvent(new KeyboardEvent('keydown', {key: key, bubbles: true})); };
  for (const button of root.querySelectorAll('table.tensors button')) if (button.textContent === '%s') button.click();
  press(root.querySelector('.wfs-map'), 'ArrowRight');
  press(root.querySelector('.wfs-map'), 'Enter');
  const input = root.querySelector('input');
  input.value = 'NORM';
  input.dispatchEvent(new Event('input'));
  console.log('hidden', Array.from(root.querySelectorAll('tr')).filter(function (row) { return row.hidden; }).length);
});
</script>'''


@pytest.fixture
def hostile(folder):
    tensors = layers(4) | {key: f32(numpy.arange(200) * (i - 3)) for i, key in enumerate(HOSTILE)}
    return st.write(folder / 'x', tensors), tensors


def test_in_a_browser_tables_sort_and_keys_lead_through_the_map(folder, hostile):
    path, tensors = hostile
    page = folder / 'page.html'
    page.write_text(weightfs('report', path).stdout.replace('</body>', CLICKS % (0, 'mean') + '</body>'))
    text, console = browse(page, '--dump-dom')
    assert len(console) == 1 and '"hidden %d"' % sum('norm' not in key for key in tensors) in console[0]
    found = Page(text)
    heading, rows = found.rows('tensors')
    means = [float(row[heading.index('mean')]) for row in rows]
    assert len(rows) == len(tensors) and means == sorted(means, reverse=True) and len(set(means)) > 10
    assert ('th', 'aria-sort', 'descending') in found.attributes
    assert [value for tag, name, value in found.attributes if tag == 'tr' and name == 'class'] == ['at']
    assert len(found.scripts) == 3


def test_in_a_notebook_each_of_several_reports_works(folder, hostile):
    """HTML(text) puts the text into the page of the notebook: the tags of a document are dropped there."""
    text = weightfs('report', hostile[0]).stdout
    page = folder / 'page.html'
    page.write_text('<!DOCTYPE html><body><p>In [1]:</p><div>%s</div><div>%s</div>%s</body>' % (text, text, CLICKS % (1, 'std')))
    shown, console = browse(page, '--dump-dom')
    assert len(console) == 1
    first, second = [rows for name, rows in Page(shown).tables if name == 'tensors']
    at = first[0].index('std')
    assert [row[at] for row in second[1:]] == sorted((row[at] for row in first[1:]), key=float, reverse=True) != [row[at] for row in first[1:]]


def test_the_console_is_heard(folder):
    """Otherwise a test that it is empty would be none."""
    page = folder / 'page.html'
    page.write_text('<script>nothing.here();</script>')
    assert len(browse(page, '--dump-dom')[1]) == 1


def picture(path):
    """The rows of pixels of a PNG of eight bits."""
    data, at, packed = path.read_bytes(), 8, b''
    while at < len(data):
        n, kind = struct.unpack_from('>I4s', data, at)
        if kind == b'IHDR':
            width, height, depth, colour = struct.unpack_from('>IIBB', data, at + 8)
        if kind == b'IDAT':
            packed += data[at + 8:at + 8 + n]
        at += 12 + n
    n_channels = {2: 3, 6: 4}[colour]
    assert depth == 8
    lines = numpy.frombuffer(zlib.decompress(packed), 'u1').reshape(height, 1 + width * n_channels)
    rows, above = [], numpy.zeros(width * n_channels, 'u1')
    for filtered, line in zip(lines[:, 0], lines[:, 1:], strict=True):
        row = line.copy()
        if filtered == 2:
            row += above
        elif filtered:
            left, corner = numpy.zeros(n_channels, 'i4'), numpy.zeros(n_channels, 'i4')
            for i in range(0, len(row), n_channels):
                up = above[i:i + n_channels].astype('i4')
                guess = left + up - corner
                near = numpy.where((abs(guess - left) <= abs(guess - up)) & (abs(guess - left) <= abs(guess - corner)), left,
                                   numpy.where(abs(guess - up) <= abs(guess - corner), up, corner))
                left = (line[i:i + n_channels] + {1: left, 3: (left + up) // 2, 4: near}[int(filtered)]) & 255
                row[i:i + n_channels], corner = left, up
        rows.append(row)
        above = row
    return numpy.stack(rows).reshape(height, width, n_channels)[:, :, :3]


@pytest.mark.parametrize('verb', ['report', 'map'])
def test_pictures_are_not_blank_in_light_and_dark(folder, hostile, verb):
    page = folder / ('page.html' if verb == 'report' else 'page.svg')
    page.write_text(weightfs(verb, hostile[0]).stdout)
    brightness = []
    for scheme in (1, 0):  # light, dark
        shot = folder / ('%d.png' % scheme)
        _, console = browse(page, '--window-size=500,400', '--screenshot=%s' % shot, '--blink-settings=preferredColorScheme=%d' % scheme)
        pixels = picture(shot)
        assert console == []
        assert len(numpy.unique(pixels.reshape(-1, 3), axis=0)) > 20
        brightness.append(pixels.mean())
    assert brightness[0] > 170 and brightness[1] < (90 if verb == 'report' else brightness[0])
