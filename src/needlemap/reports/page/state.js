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

// The needles of a row: where each stands, and the text about it.
function needlesAt(trials, row) {
  const { needles, passages, strings } = trials.columns;
  const part = (passage, from, to) => (passage === null ? "" : passages[passage].slice(from, to));
  return (needles?.[row] ?? []).map(([where, needle, passage, at, before, after]) => ({
    where: strings[where],
    before: part(passage, at - before, at),
    needle: needle === null ? "" : strings[needle],
    after: part(passage, at, at + after),
  }));
}

// What the reader has chosen. Everything on the page follows from this and the summary.

const state = {
  summary: null,
  views: [],
  written: {}, // nodes that Python wrote, by view and part
  runs: [], // each run's own view, by its number
  places: [null, null], // of the keyboard and the open cell, as a sheet was chosen
  view: 0, // the run or difference that is shown
  active: 0, // the cell that the keyboard is on
  cell: null, // the cell whose trials are open
  trial: null, // which of them, by its run's path and its repeat
  filter: "all",
  query: "",
  palette: "",
  values: false,
  theme: "auto",
  trials: [], // tables by run, once unpacked
  loading: [], // promises of them
};

const KEPT = ["palette", "values", "theme"];
const KEPT_AS = "needlemap";

function shownView() {
  return state.views[state.view];
}

function paletteStops() {
  return state.summary.palettes[state.palette];
}

// What an earlier visit chose; nothing where the browser keeps nothing for files.
function recall() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT_AS) ?? "{}");
    for (const name of KEPT) if (typeof kept[name] === typeof state[name]) state[name] = kept[name];
  } catch {
    // no storage: the page starts as it was made
  }
}

function remember() {
  try {
    localStorage.setItem(
      KEPT_AS,
      JSON.stringify(Object.fromEntries(KEPT.map((name) => [name, state[name]]))),
    );
  } catch {
    // no storage: the choice holds until the page is closed
  }
}

// The trials of a run if they are unpacked; else null, and `then` is called when they are.
function trialsNow(number, then) {
  if (state.trials[number]) return state.trials[number];
  state.loading[number] ??= unpacked(`trials-${number}`).then((columns) => keepTrials(number, columns));
  state.loading[number].then(then);
  return null;
}

function keepTrials(number, columns) {
  state.trials[number] ??= trialTable(
    columns ?? { cell: [], strings: [] },
    state.summary.runs[number].cells.depth.length,
  );
}

// Says something to screen readers only.
function announce(text) {
  at("announce").textContent = text;
}

// Draws anew without taking the focus away: what had it is found again by its name.
function keepingFocus(draw) {
  const kept = document.activeElement?.dataset?.keep;
  draw();
  if (!kept || document.activeElement?.dataset?.keep === kept) return;
  const again = [...document.querySelectorAll("[data-keep]")].find(
    (element) => element.dataset.keep === kept,
  );
  again?.focus({ preventScroll: true });
}

// Colours of scores on a fixed scale, as Python made them: a fill and its ink for each step from 0 to 100.

const PALETTE_WORDS = {
  viridis: "viridis (colour-blind safe)",
  cividis: "cividis (colour-blind safe)",
  grey: "grey (print)",
  amber: "amber (red to green)",
};

function colourAt(steps, share) {
  return steps[Math.floor(share * (steps.length - 1) + 0.5)];
}

// Fills a button with a colour, and its text with what reads on it.
function paintBox(box, [fill, ink]) {
  return styled(box, { "background-color": fill, color: ink });
}

// Of two colours, a fill and an ink each, what CSS takes where the page is light or dark.
function onBoth(light, dark) {
  return light.map((colour, which) => (colour === dark[which] ? colour : `light-dark(${colour}, ${dark[which]})`));
}
