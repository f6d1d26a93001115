"use strict";
// What the reader has chosen. Everything on the page follows from this and the summary.

const state = {
  summary: null,
  views: [],
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
