"use strict";
// The tabs that lead to views; of many views one list.

const ROOMY = 8; // views that have a tab each

function drawTabs(views, chosen, palette, choose) {
  const few = views.length <= ROOMY;
  const groups = [...new Set(views.map((view) => view.group))];
  at("tabs").hidden = !few || views.length < 2;
  at("list").hidden = few;
  const option = (view, number) =>
    el("option", { value: number, selected: number === chosen }, `${plain(view.name)}: ${view.words}`);
  put(at("tabs"), few ? views.map((view, number) => tabOf(view, number, number === chosen, palette, choose)) : null);
  const options = views.map(option);
  const grouped = groups.flatMap((group) => {
    const own = options.filter((_, number) => views[number].group === group);
    return group ? el("optgroup", { label: group }, own) : own;
  });
  put(at("views"), few ? null : grouped);
}

function tabOf(view, number, selected, palette, choose) {
  const tab = button("", () => choose(number), {
    role: "tab",
    class: "tab",
    "aria-selected": String(selected),
    "aria-controls": "view",
    tabindex: selected ? "0" : "-1",
    "data-keep": `tab ${view.key}`,
  });
  const name = view.difference
    ? ["Loss", el("span", { class: "soft" }, isolated(view.name))]
    : [isolated(view.name)];
  tab.append(el("span", { class: "tab-name" }, name));
  if (!view.sheet) tab.append(thumbnail(view, palette));
  tab.append(el("span", { class: `tab-score ${view.sign ?? ""}` }, visible(view.words)));
  return tab;
}

// A small map without names, for choosing among several.
function thumbnail(view, palette) {
  const boxes = [...drawn(view.chart).querySelectorAll("[data-cell]")];
  const side = (box, name) => Number(box.getAttribute(name));
  const [left, top] = ["x", "y"].map((name) => Math.min(...boxes.map((box) => side(box, name))));
  const right = Math.max(...boxes.map((box) => side(box, "x") + side(box, "width")));
  const bottom = Math.max(...boxes.map((box) => side(box, "y") + side(box, "height")));
  const small = svg("svg", {
    class: "thumbnail drawn",
    viewBox: boxes.length ? `${left} ${top} ${right - left} ${bottom - top}` : "0 0 1 1",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  small.append(...boxes);
  paintChart(small, view, palette);
  return small;
}

// The tab that a key leads to; null for other keys.
function tabMoved(number, many, key) {
  const moves = {
    ArrowLeft: (number + many - 1) % many,
    ArrowRight: (number + 1) % many,
    Home: 0,
    End: many - 1,
  };
  return moves[key] ?? null;
}

// Scores in tables on their colours.
function paintScores(palette) {
  for (const box of document.querySelectorAll("[data-share]")) paintBox(box, colourAt(palette, Number(box.dataset.share)));
}
