"use strict";
// What the reader does: pointer, touch, keys, menus.

const QUERY_WAIT_MS = 150; // after the last key of a search

function listen() {
  listenToMap(at("chart"));
  at("tabs").addEventListener("keydown", tabKey);
  at("views").addEventListener("change", (event) => chooseView(Number(event.target.value)));
  at("pane-close").addEventListener("click", closeCell);
  at("palette").addEventListener("change", (event) => choose({ palette: event.target.value }));
  at("values").addEventListener("change", (event) => choose({ values: event.target.checked }));
  at("theme").addEventListener("change", (event) => choose({ theme: event.target.value }));
  at("find").addEventListener("submit", (event) => event.preventDefault());
  at("query").addEventListener("input", later(searched));
  document.addEventListener("keydown", pageKey);
  document.addEventListener("scroll", hideTip, { passive: true });
  at("view").addEventListener("click", followed);
  listenToPrint();
}

function listenToMap(grid) {
  const cellOf = (event) => event.target.closest?.("[data-cell]")?.dataset.cell;
  const withCell = (does) => (event) => {
    const cell = cellOf(event);
    if (cell !== undefined) does(Number(cell), event);
  };
  grid.addEventListener(
    "pointerover",
    withCell((cell, event) => event.pointerType !== "touch" && tipOf(cell)),
  );
  grid.addEventListener("pointerleave", hideTip);
  grid.addEventListener("focusin", withCell(focused));
  grid.addEventListener("focusout", hideTip);
  grid.addEventListener(
    "click",
    withCell((cell) => {
      openCell(cell);
      reveal();
    }),
  );
  grid.addEventListener("keydown", withCell(mapKey));
}

// A name in a table leads to its view.
function followed(event) {
  const to = event.target.closest?.("[data-to]")?.dataset.to;
  if (to === undefined) return;
  event.preventDefault();
  chooseView(state.views.findIndex((view) => view.to === to));
}

function tipOf(cell) {
  const view = shownView();
  showTip(at("grid").boxes[cell], cellName(view, cell), view.facts(cell));
}

// The keyboard came to a cell: where a cell is open, its trials follow. A pointer's click comes by itself.
function focused(cell) {
  state.active = cell;
  const byKey = at("grid").boxes[cell].matches(":focus-visible");
  if (byKey && state.cell === null) tipOf(cell);
  if (byKey && state.cell !== null) openCell(cell);
  else markActive();
}

function mapKey(cell, event) {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    return openCell(cell, { focus: event.key === "Enter" });
  }
  const next = moved(shownView(), cell, event.key, event.ctrlKey || event.metaKey);
  if (next === null || event.altKey) return null;
  event.preventDefault();
  return at("grid").boxes[next].focus();
}

function tabKey(event) {
  const next = tabMoved(state.view, state.views.length, event.key);
  if (next === null) return;
  event.preventDefault();
  chooseView(next);
  at("tabs").children[next].focus();
}

// Keys of the whole page; none while somebody types, and none that the browser uses itself.
function pageKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return escaped();
  if (event.target.matches?.("input, select, textarea")) return;
  if (event.key === "n") stepTrial(1);
  if (event.key === "p") stepTrial(-1);
}

function escaped() {
  if (!at("tip").hidden) hideTip();
  if (state.cell !== null) closeCell();
}

function searched() {
  state.query = at("query").value;
  drawPane();
}

// A function that runs once its calls pause.
function later(does) {
  let waiting = 0;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(does, QUERY_WAIT_MS);
  };
}

function choose(choice) {
  Object.assign(state, choice);
  remember();
  draw();
}

// On a narrow screen the pane is below the map: bring it in sight.
function reveal() {
  const pane = at("pane");
  if (pane.getBoundingClientRect().top < window.innerHeight * 0.5) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  pane.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

// What is folded is printed too.
function listenToPrint() {
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(":is(#notes, #sheet, #verdict) details:not([open])")];
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });
}

// The box that names what the pointer or the keyboard is on. Screen readers get the same words from the cell.

const TIP_GAP = 10; // pixels

function showTip(anchor, title, facts) {
  const tip = at("tip");
  put(tip, el("p", { class: "tip-title" }, visible(title)), factList(facts));
  tip.hidden = false;
  placeTip(tip, anchor.getBoundingClientRect());
}

function hideTip() {
  at("tip").hidden = true;
}

// Beside its anchor, so that the column being read stays free; where neither side has room, under or over it.
function placeTip(tip, anchor) {
  const { width, height } = tip.getBoundingClientRect();
  const [wide, high] = [document.documentElement.clientWidth, document.documentElement.clientHeight];
  const [right, left] = [anchor.right + TIP_GAP, anchor.left - TIP_GAP - width];
  const beside = right + width <= wide - 4 ? right : left >= 4 ? left : null;
  const below = anchor.bottom + TIP_GAP + height <= high - 4;
  const middle = (from, to, size, most) => Math.max(4, Math.min((from + to - size) / 2, most - size - 4));
  const top = below ? anchor.bottom + TIP_GAP : Math.max(4, anchor.top - TIP_GAP - height);
  styled(tip, {
    left: `${beside ?? middle(anchor.left, anchor.right, width, wide)}px`,
    top: `${beside === null ? top : middle(anchor.top, anchor.bottom, height, high)}px`,
  });
}

// Reads the summary, draws the page, and follows what the reader does.

async function main() {
  if (typeof DecompressionStream === "undefined") {
    fail("This browser is too old to unpack the page: use one of 2023 or later.");
    return;
  }
  const summary = await readSummary();
  if (!summary) return;
  state.palette = summary.palette;
  recall();
  take(summary);
  listen();
  at("controls").hidden = at("page").hidden = false;
  (window.requestIdleCallback ?? setTimeout)(() =>
    shownView().runs.forEach((number) => trialsNow(number, drawPane)),
  );
}

async function readSummary() {
  try {
    return await unpacked("summary");
  } catch {
    return fail("This page is damaged, perhaps cut off on its way: make it again with `needlemap report`.");
  }
}

function fail(why) {
  at("reading").hidden = false;
  at("reading").textContent = why;
  at("written").classList.add("shown");
}

function take(summary) {
  state.summary = summary;
  state.views = summary.views.map((view) => viewOf(summary, view));
  state.runs = summary.runs.map((_, number) => runView(summary, number));
  takeWritten();
  if (!(state.palette in summary.palettes)) state.palette = summary.palette;
  draw();
}

function draw() {
  const view = shownView();
  keepingFocus(() => {
    drawHead(view);
    drawWritten(view);
    drawTabs(state.views, state.view, paletteStops(), chooseView);
    at("bench").hidden = Boolean(view.sheet);
    if (!view.sheet) drawMap(view);
  });
  document.documentElement.dataset.theme = state.theme;
  if (view.sheet) return;
  markActive();
  drawPane();
}

const PARTS = ["answer", "sheet", "readings", "beside", "verdict", "effective", "lines", "numbers"]; // places for what is written of a view

// Takes what is written for readers without scripts out of the page, to show of it what belongs to a view.
function takeWritten() {
  const box = at("written");
  box.remove();
  const parts = [...box.querySelectorAll("[data-part]")];
  state.written = Object.fromEntries(
    parts.map((part) => [`${part.closest("[data-of]").dataset.of} ${part.dataset.part}`, part]),
  );
  for (const part of parts) {
    for (const figure of part.querySelectorAll("[data-points]")) {
      styled(figure, { "--points": figure.dataset.points });
    }
  }
  put(at("told"), state.written["all told"]);
}

function drawWritten(view) {
  for (const name of PARTS) {
    const part = state.written[`${view.to} ${name}`];
    at(name).hidden = !part;
    if (part?.parentNode !== at(name)) put(at(name), part);
  }
  paintScores(paletteStops());
}

function drawMap(view) {
  drawChart(view, paletteStops());
  at("chart").classList.toggle("valued", state.values);
  at("cramped-note").hidden = !state.values || Boolean(view.difference || at("chart").querySelector(".value"));
}

function drawHead(view) {
  put(at("title"), visible(view.title));
  put(at("subtitle"), view.about.flatMap((words, at) => [at ? " · " : "", isolated(words)]));
  put(
    at("palette"),
    Object.keys(state.summary.palettes).map((name) =>
      el("option", { value: name }, PALETTE_WORDS[name] ?? name),
    ),
  );
  at("palette").value = state.palette;
  at("values").checked = state.values;
  at("theme").value = state.theme;
}

// Another run or difference; the same cell stays open where it has one.
function chooseView(number) {
  const before = shownView();
  if (!before.sheet) {
    state.places = [state.active, state.cell].map((cell) => maybe(cell, () => cellPlace(before, cell)));
  }
  state.view = number;
  const to = (place) => (place && !shownView().sheet ? cellAt(shownView(), place) : null);
  const [active, open] = state.places.map(to);
  state.active = Math.max(0, active ?? 0);
  state.cell = open === null || open < 0 ? null : open;
  hideTip();
  draw();
  announce(plain(`${shownView().name}: ${shownView().words}`));
}

// The cell that the keyboard is on is the only one that Tab reaches.
function markActive() {
  const boxes = at("grid").boxes;
  boxes.forEach((box, cell) => {
    box.setAttribute("tabindex", cell === state.active ? "0" : "-1");
    box.setAttribute("aria-selected", String(cell === state.cell));
  });
}

function openCell(cell, { focus = false } = {}) {
  state.active = state.cell = cell;
  hideTip();
  markActive();
  drawPane();
  if (focus) at("pane-heading").focus();
}

function closeCell() {
  state.cell = null;
  markActive();
  drawPane();
  at("grid").boxes[state.active]?.focus();
}

main();
