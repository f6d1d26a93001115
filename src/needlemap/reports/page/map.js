"use strict";
// A view is what the page can show: a sheet, a run, or the difference of two. Runs and differences have cells.

function viewOf(summary, { of: [kind, number], title, about }) {
  const shared = { to: `${kind} ${number}`, title, about };
  if (kind === "sheet") {
    const { key, name, says, sign } = summary.sheets[number];
    return { ...shared, key: `sheet ${key}`, name, words: says, sign, group: "", sheet: true, runs: [] };
  }
  return kind === "run" ? { ...shared, ...runView(summary, number) } : { ...shared, ...differenceView(summary, number) };
}

// The view of run `number` of a summary.
function runView(summary, number) {
  const run = summary.runs[number];
  return {
    ...cellsOf(run, run),
    key: `run ${run.path}`,
    group: run.group,
    run,
    runs: [number],
    colours: (palette) => [palette, palette],
    trialCells: (cell) => [[number, cell]],
  };
}

// The view of a comparison that was made, in the first run's map.
function differenceView(summary, number) {
  const difference = summary.differences[number];
  const [first, second] = [summary.runs[difference.a], summary.runs[difference.b]];
  const view = cellsOf(difference, first);
  const { light, dark } = summary.changes;
  return {
    ...view,
    key: `difference ${first.path} ${second.path}`,
    group: "",
    difference,
    runs: [difference.a, difference.b],
    colours: () => [light, dark],
    trialCells: (cell) =>
      [difference.a, difference.b]
        .map((run) => [run, cellAt(summary.runs[run], cellPlace(view, cell))])
        .filter(([, found]) => found >= 0),
  };
}

// What is known of cells, in words; axes: the run whose lengths and depths they have.
function cellsOf(found, axes) {
  const [says, places] = found.says;
  return {
    name: found.name,
    words: found.words,
    chart: found.chart,
    cells: found.cells,
    lengths: axes.lengths,
    depths: axes.depths,
    ragged: axes.ragged,
    depthless: axes.depthless,
    share: (cell) => found.cells.share[cell],
    says: (cell) => says[places[cell]] ?? "",
    facts: (cell) =>
      found.facts.map(([word, texts, at]) => [word, texts[at[cell]]]).filter(([, text]) => text !== undefined),
  };
}

// '11k tokens at 50 %', the name of a cell; '11k tokens' where depth means nothing.
function cellName(view, cell) {
  const length = `${view.lengths[view.cells.length[cell]][1]} tokens`;
  return view.depthless ? length : `${length} at ${depthLabel(view, view.cells.depth[cell])}`;
}

function depthLabel(view, share) {
  return view.depths.find(([value]) => value === share)?.[1] ?? "";
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

// The map: the picture that Python drew, whose cells become a grid to walk through.

const STEP = 5; // cells that PageUp and PageDown move

function drawChart(view, palette) {
  const holder = at("chart");
  if (holder.view !== view) {
    holder.view = view;
    put(holder, chartOf(view));
  }
  paintChart(holder, view, palette);
}

function chartOf(view) {
  const picture = drawn(view.chart);
  const boxes = [...picture.querySelectorAll("[data-cell]")];
  for (const part of picture.children) part.setAttribute("aria-hidden", "true");
  const grid = svg("g", { id: "grid", role: "grid", "aria-describedby": "keys", "aria-label": plain(gridLabel(view)) });
  if (boxes.length) boxes[0].before(grid);
  else picture.append(grid);
  grid.boxes = [];
  for (const box of boxes) grid.boxes[Number(box.dataset.cell)] = box;
  for (const cells of gridRows(view)) {
    const row = svg("g", { role: "row" });
    for (const cell of cells) {
      const box = grid.boxes[cell];
      filled(box, { role: "gridcell", tabindex: "-1", class: "cell", "aria-label": cellSpoken(view, cell) }, []);
      box.removeAttribute("aria-hidden");
      row.append(box);
    }
    grid.append(row);
  }
  return picture;
}

function gridLabel(view) {
  return `Map of ${view.name}: prompt length across${view.depthless ? "" : ", depth of the needle down"}`;
}

// Cells on their colours, what is written on them in their inks, and the bar of colours under them.
function paintChart(holder, view, palette) {
  const [light, dark] = view.colours(palette);
  const painted = (share) => onBoth(colourAt(light, share), colourAt(dark, share));
  const colours = view.cells.share.map((share) => (share === null ? null : painted(share)));
  for (const box of holder.querySelectorAll("[data-cell]")) {
    const colour = colours[box.dataset.cell];
    if (colour) styled(box, { fill: colour[0] });
  }
  for (const part of holder.querySelectorAll("[data-on]")) {
    const ink = colours[part.dataset.on]?.[1];
    if (ink) styled(part, { [part.getAttribute("fill") === "none" ? "stroke" : "fill"]: ink });
  }
  for (const stop of holder.querySelectorAll("stop")) {
    styled(stop, { "stop-color": painted(Number(stop.getAttribute("offset")))[0] });
  }
}

// Rows as a screen reader walks them: depths, or lengths where each length has depths of its own.
function gridRows(view) {
  const rows = new Map();
  view.cells.depth.forEach((depth, cell) => {
    const row = view.ragged ? view.cells.length[cell] : depth;
    if (!rows.has(row)) rows.set(row, []);
    rows.get(row).push(cell);
  });
  return [...rows].sort((a, b) => a[0] - b[0]).map(([, cells]) => cells);
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
  return Math.abs(view.cells.depth[a] - view.cells.depth[b]);
}
