"use strict";
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
    const colour = share === null || missing === "none" ? null : colourAt(stops, share);
    paintBox(box, colour);
    box.classList.toggle("unmeasured", colour === null);
    box.classList.toggle("partly", missing === "some");
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
