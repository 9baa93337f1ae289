(function () {
  'use strict';

  function sortBy(table, column, button) {
    const heading = button.closest('th');
    const body = table.tBodies[0];
    const before = heading.getAttribute('aria-sort');
    const isText = heading.classList.contains('name');
    const isUp = before ? before === 'descending' : isText;
    const valueOf = function (row) {
      const text = row.cells[column].dataset.v || row.cells[column].textContent;
      return isText ? text : text === '' ? NaN : Number(text);
    };
    const rows = Array.from(body.rows, function (row) { return [valueOf(row), row]; });
    rows.sort(function (a, b) {
      if (!isText && (isNaN(a[0]) || isNaN(b[0]))) return isNaN(a[0]) - isNaN(b[0]);
      const order = isText ? a[0].localeCompare(b[0], 'en', {numeric: true}) : a[0] - b[0];
      return isUp ? order : -order;
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
    heading.setAttribute('aria-sort', isUp ? 'ascending' : 'descending');
    for (const row of rows) body.append(row[1]);
  }

  function makeSortable(table) {
    Array.from(table.tHead.rows[0].cells).forEach(function (heading, column) {
      const button = heading.querySelector('button');
      if (button) button.addEventListener('click', function () { sortBy(table, column, button); });
    });
  }

  function makeFilter(root) {
    const input = root.querySelector('input');
    const table = root.querySelector('table.tensors');
    if (!input || !table) return;
    input.addEventListener('input', function () {
      const text = input.value.toLowerCase();
      for (const row of table.tBodies[0].rows)
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(text);
    });
  }

  /* The arrow keys go from tile to tile, Enter and a click to the row of the table. */
  function makeMap(root) {
    const map = root.querySelector('.wfs-map');
    const status = root.querySelector('.status');
    const tiles = Array.from(map.querySelectorAll('.tile'));
    let at = -1;
    const choose = function (next) {
      if (at >= 0) tiles[at].classList.remove('at');
      at = (next + tiles.length) % tiles.length;
      tiles[at].classList.add('at');
      status.textContent = tiles[at].querySelector('title').textContent.replace(/\n/g, ', ');
    };
    const open = function () {
      const row = root.querySelector('tr[data-i="' + tiles[at].dataset.i + '"]');
      if (!row) return;
      for (const other of root.querySelectorAll('tr.at')) other.classList.remove('at');
      row.hidden = false;
      row.classList.add('at');
      row.scrollIntoView({block: 'center'});
      row.focus({preventScroll: true});
    };
    map.addEventListener('keydown', function (event) {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
      if (!tiles.length || (!step && event.key !== 'Enter')) return;
      event.preventDefault();
      if (step) choose(at < 0 ? (step > 0 ? 0 : -1) : at + step);
      else if (at >= 0) open();
    });
    tiles.forEach(function (tile, i) {
      tile.addEventListener('click', function () { choose(i); open(); });
    });
  }

  /* A notebook may have several. */
  for (const root of document.querySelectorAll('.wfs-report:not([data-ready])')) {
    root.dataset.ready = '';
    root.querySelectorAll('table.sorts').forEach(makeSortable);
    makeFilter(root);
    makeMap(root);
  }
})();
