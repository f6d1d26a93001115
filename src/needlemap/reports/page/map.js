"use strict";
// A view is what the map can show: a run, or the difference of two. Both have cells with a place and a colour.

// The view of run `number` of a summary.
function runView(summary, number) {
  const run = summary.runs[number];
  const { cells } = run;
  return {
    key: `run ${run.path}`,
    name: run.name,
    group: run.group,
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
    missing: (cell) => missingOf(cells, cell),
    value: (cell) => (cells.n[cell] === 0 ? "" : wholePercent(cells.score[cell])),
    facts: (cell) => cellFacts(run, cell),
    trialCells: (cell) => [[number, cell]],
  };
}

// "unasked" and "none": nothing was asked, or measured; "pending" and "some": not all of it.
function missingOf(cells, cell) {
  const failed = cells.missing[cell] > cells.unasked[cell];
  if (cells.n[cell] === 0) return failed ? "none" : "unasked";
  return failed ? "some" : cells.unasked[cell] ? "pending" : "";
}

// The view of a comparison that was made.
function differenceView(summary, difference) {
  const [first, second] = [summary.runs[difference.a], summary.runs[difference.b]];
  const { cells } = difference;
  const most = symmetric(cells.difference);
  return {
    key: `difference ${first.path} ${second.path}`,
    name: difference.name,
    group: "",
    names: [first.name, second.name],
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
    colours: () => summary.changes.light,
    dark: summary.changes.dark,
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
    ["score", cells.n[cell] ? `${percent(cells.score[cell])} %` : emptyWords(cells, cell)],
    ["n", restsOn(run, cells.n[cell])],
    ["95 % interval", cells.n[cell] && run.counted ? interval(cells.low[cell], cells.high[cell]) : null],
    ["needle at", run.depthless ? null : maybe(known("realised"), depthWords)],
    ["meant for", run.depthless ? null : depthWords(cells.depth[cell])],
    ["prompt", maybe(known("tokens"), (tokens) => `${count(tokens)} tokens`)],
    ["cached", cacheWords(known("cached"), known("planned"))],
    ["thinking budget spent", known("thought") ? `${known("thought")} of ${cells.n[cell]}, no answer` : null],
    lackOf(cells, cell),
  ].filter(([, value]) => value !== null);
}

// What a cell lacks: that it was not asked is no failure.
function lackOf(cells, cell) {
  const missing = cells.missing[cell];
  if (missing > cells.unasked[cell]) return ["missing", missingWords(missing, cells.failures[cell])];
  return ["not sent", missing ? counted(missing, "trial") : null];
}

function emptyWords(cells, cell) {
  return missingOf(cells, cell) === "none" ? "not measured" : "not sent";
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

// The map: one element a cell, placed by its share of the width and height, so that any layout prints sharp.

const STEP = 5; // cells that PageUp and PageDown move

// Fills `holder` with the cells of a view, only painting anew where the places are the same.
function drawGrid(holder, view, palette) {
  const shape = JSON.stringify([view.lengths, view.rows, view.ticks, view.cells.depth, view.cells.top]);
  if (holder.shape !== shape) {
    holder.shape = shape;
    styled(holder, { "--columns": view.lengths.length, "--rows": rowCount(view) });
    put(
      holder,
      headRow(view),
      gridRows(view).map((row) => rowElement(view, row)),
      tickMarks(view),
    );
    holder.boxes = boxesOf(holder, view);
  }
  holder.classList.toggle("spaced", view.lengths.length <= 20 && view.cells.depth.length <= 400);
  styled(holder, { "--digits": digitsOf(view) });
  paintCells(holder.boxes, view, palette);
  holder.boxes.forEach((box, cell) => box.setAttribute("aria-label", cellSpoken(view, cell)));
}

// Characters of the longest value that is written in a cell.
function digitsOf(view) {
  return Math.max(1, ...view.cells.depth.map((_, cell) => view.value(cell).length));
}

// A small map without names, for choosing among several.
function thumbnail(view, palette) {
  const boxes = view.cells.depth.map((_, cell) => cellBox(view, cell, "span"));
  paintCells(boxes, view, palette);
  return el("span", { class: "thumbnail", "aria-hidden": "true" }, boxes);
}

function paintCells(boxes, view, palette) {
  const stops = view.colours(palette);
  boxes.forEach((box, cell) => {
    const share = view.share(cell);
    const missing = view.missing(cell);
    const colour = share === null ? null : colourAt(stops, share);
    paintBox(box, colour, colour && view.dark ? colourAt(view.dark, share) : colour);
    box.classList.toggle("unmeasured", colour === null);
    for (const kind of ["unasked", "pending"]) box.classList.toggle(kind, missing === kind);
    box.classList.toggle("partly", missing === "some");
    box.classList.toggle("thought", Boolean(view.cells.thought?.[cell]));
    if (box.textContent !== view.value(cell)) box.textContent = view.value(cell);
  });
}

function cellBox(view, cell, tag, attributes = {}) {
  const { length, top, bottom } = view.cells;
  const columns = view.lengths.length;
  return styled(el(tag, { class: "cell", ...attributes }), {
    "--left": share100(length[cell] / columns),
    "--width": share100(1 / columns),
    "--top": share100(top[cell] / view.rows),
    "--height": share100((bottom[cell] - top[cell]) / view.rows),
  });
}

function share100(share) {
  return `${Number((100 * share).toFixed(4))}%`;
}

function boxesOf(holder, view) {
  const boxes = new Array(view.cells.depth.length);
  for (const box of holder.querySelectorAll(".cell")) boxes[Number(box.dataset.cell)] = box;
  return boxes;
}

// Rows as a screen reader walks them: depths, or lengths where each length has depths of its own.
function gridRows(view) {
  const rows = new Map();
  view.cells.depth.forEach((depth, cell) => {
    const row = view.ragged ? view.cells.length[cell] : depth;
    if (!rows.has(row)) rows.set(row, []);
    rows.get(row).push(cell);
  });
  return [...rows].sort((a, b) => a[0] - b[0]);
}

function rowCount(view) {
  return view.ragged ? 24 : view.rows;
}

function headRow(view) {
  if (view.ragged) return null;
  return el(
    "div",
    { role: "row" },
    view.lengths.map(([, label], column) => lengthName(view, column, label, "columnheader")),
  );
}

function rowElement(view, [key, cells]) {
  const name = view.ragged
    ? lengthName(view, key, view.lengths[key][1], "rowheader")
    : depthName(
        (view.cells.top[cells[0]] + 0.5) / view.rows,
        view.depths.find(([share]) => share === key)?.[1] ?? "",
        view.depthless ? { role: "rowheader" } : undefined,
      );
  const boxes = cells.map((cell) =>
    cellBox(view, cell, "div", { role: "gridcell", tabindex: "-1", "data-cell": cell }),
  );
  return el("div", { role: "row" }, name, boxes);
}

function lengthName(view, column, label, role) {
  const place = share100((column + 0.5) / view.lengths.length);
  return styled(el("span", { role, class: "length-name", "aria-label": `${label} tokens` }, label), {
    left: place,
  });
}

function depthName(place, label, attributes = { role: "rowheader", "aria-label": `depth ${label}` }) {
  return styled(el("span", { class: "depth-name", ...attributes }, label), { top: share100(place) });
}

// Marks of the depth axis where rows have no depth of their own.
function tickMarks(view) {
  if (!view.ragged) return [];
  return view.ticks.map(([place, label]) => depthName(place / view.rows, label, { "aria-hidden": "true" }));
}

// A cell as a screen reader says it: never a score without n and interval.
function cellSpoken(view, cell) {
  const facts = view.facts(cell).map(([word, value]) => `${word} ${value}`);
  return plain(`${cellName(view, cell)}: ${facts.join(", ")}`);
}

// The cell that a key leads to from another; null for keys that do not move.
function moved(view, cell, key, far) {
  const column = view.cells.length[cell];
  const last = view.lengths.length - 1;
  const moves = {
    ArrowLeft: () => beside(view, cell, column - 1),
    ArrowRight: () => beside(view, cell, column + 1),
    ArrowUp: () => along(view, cell, -1),
    ArrowDown: () => along(view, cell, 1),
    PageUp: () => along(view, cell, -STEP),
    PageDown: () => along(view, cell, STEP),
    Home: () => (far ? 0 : nearest(view, cell, 0, 1)),
    End: () => (far ? view.cells.depth.length - 1 : nearest(view, cell, last, -1)),
  };
  return moves[key] ? moves[key]() : null;
}

function beside(view, cell, column) {
  const way = Math.sign(column - view.cells.length[cell]);
  return nearest(view, cell, column, way);
}

// In a column, or the next one that has cells, the cell whose middle is nearest in depth.
function nearest(view, cell, column, way) {
  for (let at = column; at >= 0 && at < view.lengths.length; at += way) {
    const found = columnCells(view, at);
    if (found.length) return found.reduce((a, b) => (offset(view, b, cell) < offset(view, a, cell) ? b : a));
  }
  return cell;
}

function along(view, cell, steps) {
  const cells = columnCells(view, view.cells.length[cell]);
  return cells[Math.min(Math.max(cells.indexOf(cell) + steps, 0), cells.length - 1)];
}

function columnCells(view, column) {
  return view.cells.depth.map((_, cell) => cell).filter((cell) => view.cells.length[cell] === column);
}

function offset(view, a, b) {
  const middle = (cell) => view.cells.top[cell] + view.cells.bottom[cell];
  return Math.abs(middle(a) - middle(b));
}

// Fits names to the room there is: every k-th name of an axis, and values only where they can be read.

const NAME_GAP = 8; // pixels between two names
const ROW_HEIGHT = 13; // of a name of the depth axis
const READABLE = 7.5; // pixels of the smallest digits

function fitMap() {
  const grid = at("grid");
  const { width, height } = grid.getBoundingClientRect();
  if (!width || !state.views.length) return;
  const view = shownView();
  const columns = view.lengths.length;
  for (const names of [grid.querySelectorAll(".length-name"), at("by-length").querySelectorAll(".count")]) {
    thin(names, width / names.length, widest(names) + NAME_GAP);
  }
  for (const names of [grid.querySelectorAll(".depth-name"), at("by-depth").querySelectorAll(".count")]) {
    thin(names, height / names.length, ROW_HEIGHT);
  }
  styled(at("frame"), { "--mark-rows": Math.max(1, fitMarks(width)) });
  const size = Math.min((width / columns / digitsOf(view)) * 1.3, (height / rowCount(view)) * 0.8);
  grid.classList.toggle("cramped", size < READABLE);
  at("cramped-note").hidden = !state.values || size >= READABLE;
}
