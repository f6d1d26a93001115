"use strict";
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
