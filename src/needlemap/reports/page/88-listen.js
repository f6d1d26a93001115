"use strict";
// What the reader does: pointer, touch, keys, menus.

const QUERY_WAIT_MS = 150; // after the last key of a search

function listen() {
  listenToMap(at("grid"));
  for (const name of ["by-length", "by-depth"]) listenToMargin(at(name));
  at("tabs").addEventListener("keydown", tabKey);
  at("pane-close").addEventListener("click", closeCell);
  at("palette").addEventListener("change", (event) => choose({ palette: event.target.value }));
  at("values").addEventListener("change", (event) => choose({ values: event.target.checked }));
  at("theme").addEventListener("change", (event) => choose({ theme: event.target.value }));
  at("find").addEventListener("submit", (event) => event.preventDefault());
  at("query").addEventListener("input", later(searched));
  document.addEventListener("keydown", pageKey);
  document.addEventListener("scroll", hideTip, { passive: true });
  new ResizeObserver(fitMap).observe(at("grid"));
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

function listenToMargin(margin) {
  margin.addEventListener("pointerover", (event) => {
    if (event.target.facts) showTip(event.target, ...event.target.facts);
  });
  margin.addEventListener("pointerleave", hideTip);
}

function tipOf(cell) {
  const view = shownView();
  showTip(at("grid").boxes[cell], cellName(view, cell), view.facts(cell));
}

// The keyboard came to a cell: where a cell is open, its trials follow. A pointer's click comes by itself.
function focused(cell) {
  state.active = cell;
  const byKey = at("grid").boxes[cell].matches(":focus-visible");
  if (byKey) tipOf(cell);
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
  if (pane.getBoundingClientRect().top < window.innerHeight * 0.85) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  pane.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

// What is folded is printed too.
function listenToPrint() {
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("#notes details:not([open])")];
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });
}
