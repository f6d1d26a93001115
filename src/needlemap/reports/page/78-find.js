"use strict";
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
  const view = state.views[number];
  const repeat = valueAt(trials, "repeat", row);
  const cell = valueAt(trials, "cell", row);
  const score = valueAt(trials, "score", row);
  const where = `${cellName(view, cell)}, repeat ${repeat}: ${score === null ? "not measured" : `${percent(score)} %`}`;
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
  const place = cellPlace(state.views[ref.number], valueAt(state.trials[ref.number], "cell", ref.row));
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
      hits.map(({ number, row }) => cellKey(state.views[number], valueAt(state.trials[number], "cell", row))),
    );
  const view = shownView();
  at("grid").boxes.forEach((box, cell) =>
    box.classList.toggle("dim", Boolean(found) && !found.has(cellKey(view, cell))),
  );
}

function cellKey(view, cell) {
  return cellPlace(view, cell).join(" ");
}
