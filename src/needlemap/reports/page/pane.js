"use strict";
// The pane beside the map: the open cell, its trials as a row of buttons, and the chosen trial.

const LOWEST = 8; // cells named while none is open

function drawPane() {
  if (shownView().sheet) return;
  const open = state.cell !== null;
  document.body.classList.toggle("open", open);
  at("pane-close").hidden = !open;
  put(at("pane-heading"), open ? cellName(shownView(), state.cell) : "Trials");
  const tables = state.views[state.view].runs.map((number) => trialsNow(number, drawPane));
  const ready = tables.every(Boolean);
  drawFinder(ready);
  if (!open) closedPane();
  else openPane(ready);
}

function closedPane() {
  put(
    at("cell"),
    el("p", { class: "soft" }, "Choose a cell of the map to read its prompts and answers. ", shownView().run?.sharing ?? ""),
    ...(lowest() ?? []),
  );
  showTrial(null);
}

// Where to begin to read: the cells of least score or greatest loss.
function lowest() {
  const view = shownView();
  const share = (cell) => view.share(cell) ?? 1;
  const worst = view.difference ? 0.5 : 1;
  const cells = view.cells.depth.map((_, cell) => cell).filter((cell) => share(cell) < worst);
  if (!cells.length || state.query || state.filter !== "all") return null;
  const first = cells.sort((a, b) => share(a) - share(b) || a - b).slice(0, LOWEST);
  const label = view.difference
    ? "Greatest losses (exploration, not corrected)"
    : "Lowest cells, shortest prompts first";
  return [
    el("h3", {}, label),
    el(
      "ol",
      { class: "lowest" },
      first.map((cell) => el("li", {}, lowestButton(view, cell))),
    ),
  ];
}

function lowestButton(view, cell) {
  const label = el("span", {}, el("b", {}, cellName(view, cell)), el("span", { class: "soft" }, view.says(cell)));
  return button(label, () => openCell(cell), { class: "hit", "data-keep": `lowest ${cell}` });
}

function openPane(ready) {
  const view = shownView();
  const facts = factList(view.facts(state.cell), { class: "facts columns" });
  if (!ready) return put(at("cell"), facts, el("p", { class: "soft" }, "Reading the trials …"));
  const refs = cellTrials(view, state.cell);
  const place = placeOf(refs);
  keepingFocus(() => put(at("cell"), facts, strip(view, refs, place)));
  return showTrial(refs[place] ?? null);
}

// The trials of a cell that pass the filter: {number, row} by repeat, then run.
function cellTrials(view, cell) {
  const all = view
    .trialCells(cell)
    .flatMap(([number, place]) => rowsOf(state.trials[number], place).map((row) => ({ number, row })));
  const repeat = ({ number, row }) => valueAt(state.trials[number], "repeat", row);
  return all.filter(passes).sort((a, b) => repeat(a) - repeat(b) || a.number - b.number);
}

// What names a trial in its cell, whatever else comes in while a run goes on.
function trialName({ number, row }) {
  return { path: state.summary.runs[number].path, repeat: valueAt(state.trials[number], "repeat", row) };
}

// Where among trials the chosen one is; else the same repeat, as of another run; else the first.
function placeOf(refs) {
  const names = refs.map(trialName);
  const repeat = names.findIndex((name) => name.repeat === state.trial?.repeat);
  const exact = names.findIndex(
    (name) => name.repeat === state.trial?.repeat && name.path === state.trial?.path,
  );
  return Math.max(0, exact < 0 ? repeat : exact);
}

function strip(view, refs, chosen) {
  if (!refs.length)
    return el(
      "p",
      { class: "soft" },
      state.filter === "all"
        ? "No trial of this cell was asked."
        : "No trial of this cell is of that kind.",
    );
  const step = (by, label, key) =>
    button(label, () => stepTrial(by), {
      class: "quiet",
      "aria-label": `${key} trial`,
      "data-keep": `step ${key}`,
    });
  return el(
    "div",
    { class: "strip", role: "group", "aria-label": "Trials of this cell" },
    step(-1, "‹", "Previous"),
    refs.map((ref, place) => chip(view, ref, place === chosen)),
    step(1, "›", "Next"),
  );
}

// A trial as a small square of its score's colour.
function chip(view, ref, chosen) {
  const trials = state.trials[ref.number];
  const score = valueAt(trials, "score", ref.row);
  const repeat = valueAt(trials, "repeat", ref.row);
  const whose = view.difference ? `${"AB"[view.runs.indexOf(ref.number)]} ` : "";
  const made = button(`${whose}${repeat}`, () => chooseTrial(ref), {
    class: "chip",
    "aria-pressed": String(chosen),
    "data-keep": `trial ${whose}${repeat}`,
    "aria-label": `${whose}repeat ${repeat}: ${textAt(trials, "says", ref.row)}`,
  });
  if (score === null) made.classList.add("unmeasured");
  else paintBox(made, colourAt(paletteStops(), score));
  return made;
}

function chooseTrial(ref) {
  state.trial = trialName(ref);
  drawPane();
  announce(trialTitle(state.trials[ref.number], ref.row));
}

function stepTrial(by) {
  const view = shownView();
  if (state.cell === null || !view.runs.every((number) => state.trials[number])) return;
  const refs = cellTrials(view, state.cell);
  const next = refs[placeOf(refs) + by];
  if (next) chooseTrial(next);
}

// Draws a trial only when it is another one or has changed, so that reading is not disturbed.
function showTrial(ref) {
  const place = at("trial");
  const sign = ref === null ? "" : trialSign(ref);
  if (place.sign === sign) return;
  place.sign = sign;
  if (ref === null) return void put(place);
  state.trial = trialName(ref);
  const run = state.summary.runs[ref.number];
  const whose = shownView().difference ? el("p", { class: "soft" }, "Run ", isolated(run.name)) : null;
  put(place, whose, trialNodes(state.trials[ref.number], ref.row, run));
}

function trialSign({ number, row }) {
  const trials = state.trials[number];
  const place = cellPlace(state.runs[number], valueAt(trials, "cell", row));
  return JSON.stringify([shownView().key, number, place, valueAt(trials, "repeat", row)]);
}

// Which trials are shown: all, wrong, right, not measured; and a search through all answers of the run.

const MOST_FOUND = 100; // in the list
const EXCERPT = 60; // characters before what was found
const FILTERS = ["all", "wrong", "right", "unmeasured"];
const FULL = 1 - 1e-9;

function drawFinder(ready) {
  const refs = ready ? allTrials() : [];
  const graded = refs.some(({ number, row }) => isGraded(valueAt(state.trials[number], "score", row)));
  const scope = state.cell === null ? refs : refs.filter(inCell);
  keepingFocus(() =>
    put(
      at("filter"),
      FILTERS.map((filter) => filterButton(filter, scope, graded)),
    ),
  );
  const listed = state.query !== "" || (state.filter !== "all" && state.cell === null);
  const hits = listed && ready ? refs.filter(passes).filter(answersQuery) : null;
  keepingFocus(() => put(at("found"), hits ? foundNodes(hits) : []));
  dimOthers(hits);
}

function allTrials() {
  return shownView().runs.flatMap((number) =>
    Array.from({ length: state.trials[number].rows }, (_, row) => ({ number, row })),
  );
}

function isGraded(score) {
  return score !== null && score > 1 - FULL && score < FULL;
}

function inCell({ number, row }) {
  const cells = shownView().trialCells(state.cell);
  return cells.some(([run, cell]) => run === number && cell === valueAt(state.trials[number], "cell", row));
}

function kindOf({ number, row }) {
  const score = valueAt(state.trials[number], "score", row);
  if (score === null) return "unmeasured";
  return score >= FULL ? "right" : "wrong";
}

function passes(ref) {
  return state.filter === "all" || kindOf(ref) === state.filter;
}

function filterButton(filter, scope, graded) {
  const words = {
    all: "all",
    unmeasured: "not measured",
    wrong: graded ? "below full score" : "wrong",
    right: graded ? "full score" : "right",
  };
  const number = filter === "all" ? scope.length : scope.filter((ref) => kindOf(ref) === filter).length;
  const label = el("span", {}, words[filter], " ", el("span", { class: "soft" }, count(number)));
  return button(label, () => chooseFilter(filter), {
    class: "choice",
    "aria-pressed": String(state.filter === filter),
    "data-keep": `filter ${filter}`,
  });
}

function chooseFilter(filter) {
  state.filter = filter;
  drawPane();
}

// Whether the answer, or the words of the failure, hold what is looked for, in any case.
function answersQuery(ref) {
  return state.query === "" || foundAt(ref) !== null;
}

function foundAt({ number, row }) {
  const query = state.query.toLowerCase();
  for (const column of ["answer", "error"]) {
    const text = textAt(state.trials[number], column, row);
    const place = text === null ? -1 : lowered(state.trials[number], column, row).indexOf(query);
    if (place >= 0) return [text, place];
  }
  return null;
}

// Lower case is made once for each text of a run.
function lowered(trials, column, row) {
  trials.lower ??= [];
  const place = trials.columns[column][row];
  return (trials.lower[place] ??= trials.columns.strings[place].toLowerCase());
}

function foundNodes(hits) {
  const more = hits.length - MOST_FOUND;
  return [
    el("p", { class: "soft", role: "status" }, `${counted(hits.length, "trial")} found`),
    el(
      "ol",
      { class: "found" },
      hits.slice(0, MOST_FOUND).map((ref) => el("li", {}, foundButton(ref))),
    ),
    more > 0 ? el("p", { class: "soft" }, `and ${count(more)} more`) : null,
  ];
}

function foundButton(ref) {
  const { number, row } = ref;
  const trials = state.trials[number];
  const view = state.runs[number];
  const repeat = valueAt(trials, "repeat", row);
  const cell = valueAt(trials, "cell", row);
  const where = `${cellName(view, cell)}, repeat ${repeat}: ${textAt(trials, "says", row)}`;
  return button("", () => openFound(ref), {
    class: "hit",
    "data-keep": `found ${number} ${row}`,
  }).appendChild(
    el("span", {}, el("b", {}, where), el("span", { class: "excerpt", dir: "auto" }, excerpt(ref))),
  ).parentNode;
}

function excerpt(ref) {
  const trials = state.trials[ref.number];
  const [text, place] = (state.query && foundAt(ref)) || [
    textAt(trials, "answer", ref.row) ?? textAt(trials, "error", ref.row) ?? "",
    0,
  ];
  const from = Math.max(0, place - EXCERPT);
  return marked(whole(text.slice(from, place + 2 * EXCERPT)).replace(/\s+/g, " "), [state.query]);
}

// Opens the cell of a found trial with that trial.
function openFound(ref) {
  const view = shownView();
  const place = cellPlace(state.runs[ref.number], valueAt(state.trials[ref.number], "cell", ref.row));
  const cell = cellAt(view, place);
  if (cell < 0) return;
  state.cell = state.active = cell;
  state.trial = trialName(ref);
  markActive();
  drawPane();
}

// Fades the cells without a hit.
function dimOthers(hits) {
  const found =
    hits &&
    new Set(
      hits.map(({ number, row }) => cellKey(state.runs[number], valueAt(state.trials[number], "cell", row))),
    );
  const view = shownView();
  at("grid").boxes.forEach((box, cell) =>
    box.classList.toggle("dim", Boolean(found) && !found.has(cellKey(view, cell))),
  );
}

function cellKey(view, cell) {
  return cellPlace(view, cell).join(" ");
}
