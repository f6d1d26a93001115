"use strict";
// A view is what the map can show: a run, or the difference of two. Both have cells with a place and a colour.

// The view of run `number` of a summary.
function runView(summary, number) {
  const run = summary.runs[number];
  const { cells } = run;
  return {
    key: `run ${run.path}`,
    name: run.name,
    run,
    runs: [number],
    cells,
    lengths: run.lengths,
    depths: run.depths,
    rows: run.rows,
    ragged: run.ragged,
    depthless: run.depthless,
    ticks: run.depth_ticks,
    share: (cell) => cells.score[cell],
    colours: (palette) => palette,
    missing: (cell) => (cells.n[cell] === 0 ? "none" : cells.missing[cell] > 0 ? "some" : ""),
    value: (cell) => (cells.n[cell] === 0 ? "" : String(Math.round(100 * cells.score[cell]))),
    facts: (cell) => cellFacts(run, cell),
    trialCells: (cell) => [[number, cell]],
  };
}

// The view of a comparison that was made.
function differenceView(summary, difference) {
  const [first, second] = [summary.runs[difference.a], summary.runs[difference.b]];
  const { cells } = difference;
  const most = symmetric(cells.difference);
  return {
    key: `difference ${first.path} ${second.path}`,
    name: `${second.name} \u2212 ${first.name}`,
    difference,
    most,
    runs: [difference.a, difference.b],
    cells,
    lengths: first.lengths,
    depths: first.depths,
    rows: first.rows,
    ragged: first.ragged,
    depthless: first.depthless,
    ticks: first.depth_ticks,
    share: (cell) => maybe(cells.difference[cell], (change) => (change / most + 1) / 2),
    colours: () => DIVERGING,
    missing: (cell) => (cells.difference[cell] === null ? "none" : ""),
    value: (cell) => maybe(cells.difference[cell], wholePoints) ?? "",
    facts: (cell) => differenceFacts(first, cells, cell),
    trialCells: (cell) => sameCells(summary, difference, first, cells, cell),
  };
}

// What is known of a cell, most important first: pairs of a word and its value.
function cellFacts(run, cell) {
  const { cells } = run;
  const known = (name) => cells[name]?.[cell] ?? null;
  return [
    ["score", cells.n[cell] ? `${percent(cells.score[cell])} %` : "not measured"],
    ["n", restsOn(run, cells.n[cell])],
    ["95 % interval", cells.n[cell] && run.counted ? interval(cells.low[cell], cells.high[cell]) : null],
    ["needle at", run.depthless ? null : maybe(known("realised"), depthWords)],
    ["meant for", run.depthless ? null : depthWords(cells.depth[cell])],
    ["prompt", maybe(known("tokens"), (tokens) => `${count(tokens)} tokens`)],
    ["cached", cacheWords(known("cached"), known("planned"))],
    ["missing", cells.missing[cell] ? missingWords(cells.missing[cell], known("failures")) : null],
    [
      "counted once",
      known("repeated") ? `${counted(known("repeated"), "trial")} with another trial's prompt` : null,
    ],
  ].filter(([, value]) => value !== null);
}

function differenceFacts(first, cells, cell) {
  return [
    ["difference", `${points(cells.difference[cell])} points`],
    ["n", counted(cells.n[cell], "pair")],
    ["changed", `${cells.lost[cell]} lost, ${cells.gained[cell]} gained`],
    ["p", maybe(cells.p[cell], (p) => `${probability(p)}, not corrected: exploration only`)],
    ["depth", first.depthless ? null : depthWords(cells.depth[cell])],
  ].filter(([, value]) => value !== null);
}

// '11k tokens at 50 %', the name of a cell; '11k tokens' where depth means nothing.
function cellName(view, cell) {
  const length = `${view.lengths[view.cells.length[cell]][1]} tokens`;
  return view.depthless ? length : `${length} at ${depthLabel(view, view.cells.depth[cell])}`;
}

function depthLabel(view, share) {
  const found = view.depths.find(([value]) => value === share);
  return found ? found[1].replace("%", " %") : depthWords(share);
}

// The cells of both runs that a cell of their difference stands for.
function sameCells(summary, difference, first, cells, cell) {
  const place = [first.lengths[cells.length[cell]][0], cells.depth[cell]];
  return [difference.a, difference.b]
    .map((number) => [number, cellAt(summary.runs[number], place)])
    .filter(([, found]) => found >= 0);
}

// The number of the cell at a place, in a run or view; -1 without one.
function cellAt(where, [length, depth]) {
  const { cells, lengths } = where;
  return cells.depth.findIndex(
    (share, cell) => Math.abs(share - depth) < 1e-9 && lengths[cells.length[cell]][0] === length,
  );
}

// The cell's length in tokens and depth as a share: what names it in any run.
function cellPlace(view, cell) {
  return [view.lengths[view.cells.length[cell]][0], view.cells.depth[cell]];
}
