"use strict";
// What the file holds: the summary, and the trials of each run, unpacked when first needed.

// The JSON value in a packed block of the page; null without one.
async function unpacked(id) {
  const block = at(id);
  if (!block) return null;
  const bytes = bytesOf(block.textContent.trim());
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  return bytes;
}

// Trials of a run: its columns, and the first row of each cell (rows are sorted by cell).
function trialTable(columns, cells) {
  const first = new Int32Array(cells + 1);
  for (const cell of columns.cell) first[cell + 1] += 1;
  for (let cell = 0; cell < cells; cell += 1) first[cell + 1] += first[cell];
  return { columns, first, rows: columns.cell.length };
}

// The rows of one cell.
function rowsOf(trials, cell) {
  const [from, to] = [trials.first[cell], trials.first[cell + 1]];
  return Array.from({ length: to - from }, (_, place) => from + place);
}

// The text that a column holds in a row; null for none.
function textAt(trials, column, row) {
  const place = trials.columns[column]?.[row];
  return place === null || place === undefined ? null : trials.columns.strings[place];
}

function textsAt(trials, column, row) {
  return (trials.columns[column]?.[row] ?? []).map((place) => trials.columns.strings[place]);
}

function valueAt(trials, column, row) {
  return trials.columns[column]?.[row] ?? null;
}

// The needles of a row: where each was meant and came to stand, and the text about it.
function needlesAt(trials, row) {
  const { needles, passages, strings } = trials.columns;
  const part = (passage, from, to) => (passage === null ? "" : passages[passage].slice(from, to));
  return (needles?.[row] ?? []).map(([meant, realised, needle, passage, at, before, after]) => ({
    meant,
    realised,
    before: part(passage, at - before, at),
    needle: needle === null ? "" : strings[needle],
    after: part(passage, at, at + after),
  }));
}
