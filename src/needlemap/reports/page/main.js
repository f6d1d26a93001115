"use strict";
// A run that still goes: asks the server for what is new, and keeps the reader where they are.

const LIVE_GONE_MS = 5000; // when the server does not answer
const SPOKEN_EVERY_MS = 20000; // how often a screen reader hears of it

let spoken = 0;

// Begins to ask, where the page was served by a run.
function follow(take) {
  const address = document.querySelector('meta[name="needlemap-live"]')?.content;
  if (address) ask(address, state.summary.live?.version ?? 0, take);
}

// The server keeps a request until it has news, and has some once a second at most. So it is asked again at once:
// a hidden tab's timers may run but once a minute, and would miss the end.
async function ask(address, version, take) {
  let next = version;
  while (state.summary.live?.state !== "ended") {
    try {
      const reply = await fetch(`${address}?since=${next}`, { cache: "no-store" });
      if (reply.status === 200) next = taken(await reply.json(), take);
      else if (reply.status !== 204) throw new Error(`status ${reply.status}`);
      at("live").classList.remove("gone");
    } catch {
      gone();
      await new Promise((done) => setTimeout(done, LIVE_GONE_MS));
    }
  }
}

function taken(news, take) {
  take(news.summary, news.trials);
  drawLive(news.summary.live);
  at("live-updated").textContent = `updated ${clock()}`;
  if (Date.now() - spoken > SPOKEN_EVERY_MS || news.summary.live?.state === "ended") {
    spoken = Date.now();
    announce(news.summary.live?.line ?? "updated");
  }
  return news.version;
}

function drawLive(live) {
  at("live").hidden = !live;
  if (!live) return;
  at("live").dataset.state = live.state;
  put(at("live-line"), visible(live.line));
}

// The run's process is over or cannot be reached: what is shown stays.
function gone() {
  const line =
    "The run does not answer any more. The map is as it was at the last update; the run folder holds everything.";
  if (!at("live").classList.contains("gone")) announce(line);
  at("live").hidden = false;
  at("live").classList.add("gone");
  at("live-updated").textContent = line;
}

function clock() {
  return new Date().toLocaleTimeString("en-GB");
}

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
  take(summary, null);
  listen();
  at("controls").hidden = at("page").hidden = false;
  follow(take);
  (window.requestIdleCallback ?? setTimeout)(() =>
    state.summary.runs.forEach((_, number) => trialsNow(number, drawPane)),
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
}

// A new summary, and with it new trials. The cells are a run's from its start, so the reader's choices stand.
function take(summary, trials) {
  state.summary = summary;
  state.views = [
    ...summary.runs.map((_, number) => runView(summary, number)),
    ...summary.differences
      .filter((difference) => !difference.refused)
      .map((difference) => differenceView(summary, difference)),
  ];
  if (trials)
    trials.forEach((columns, number) => {
      state.trials[number] = null;
      keepTrials(number, columns);
    });
  if (!(state.palette in summary.palettes)) state.palette = summary.palette;
  draw();
}

function draw() {
  const view = shownView();
  keepingFocus(() => {
    drawHead(view);
    drawTabs(state.views, state.view, paletteStops(), chooseView);
    drawRefused(state.summary);
    drawGrid(at("grid"), view, paletteStops());
    drawMargins(view);
    drawOverview(view, paletteStops());
    drawNotes(state.summary, view);
    drawLive(state.summary.live);
  });
  at("grid").classList.toggle("valued", state.values);
  document.documentElement.dataset.theme = state.theme;
  fitMap();
  markActive();
  drawPane();
}

function drawHead(view) {
  const run = view.run ?? state.summary.runs[view.difference.a];
  const title = state.summary.title ?? run.title ?? view.name;
  put(at("title"), visible(title));
  const words = [
    ["", run.model],
    ["task ", run.task],
    ["scorer ", run.scorer],
    ["mode ", run.mode],
    ["tokenizer ", run.tokenizer],
  ];
  const named = view.difference
    ? [
        ["", view.name],
        ["task ", run.task],
        ["paired trials", " "],
      ]
    : words;
  put(
    at("subtitle"),
    named
      .filter(([, value]) => value)
      .flatMap(([word, value], at) => [at ? " · " : "", word, isolated(value)]),
  );
  at("grid").setAttribute(
    "aria-label",
    plain(`Map of ${view.name}: prompt length across${view.depthless ? "" : ", depth of the needle down"}`),
  );
  put(at("below-name"), "prompt length, tokens");
  put(at("left-name"), view.depthless ? null : el("span", {}, "depth of the needle"));
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
  const places = [state.active, state.cell].map((cell) => maybe(cell, () => cellPlace(shownView(), cell)));
  state.view = number;
  const [active, open] = places.map((place) => maybe(place, () => cellAt(shownView(), place)));
  state.active = Math.max(0, active);
  state.cell = open === null || open < 0 ? null : open;
  draw();
  announce(plain(`${shownView().name}: ${tabWords(shownView())}`));
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
