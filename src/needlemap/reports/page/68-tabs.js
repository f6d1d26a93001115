"use strict";
// Several runs side by side: small maps on one scale, one of them chosen.

function drawTabs(views, chosen, palette, choose) {
  const tabs = at("tabs");
  tabs.hidden = views.length < 2;
  if (tabs.hidden) return;
  put(
    tabs,
    views.map((view, number) => tabOf(view, number, chosen, palette, choose)),
  );
}

function tabOf(view, number, chosen, palette, choose) {
  const tab = button("", () => choose(number), {
    role: "tab",
    class: "tab",
    "aria-selected": String(number === chosen),
    "aria-controls": "panel",
    tabindex: number === chosen ? "0" : "-1",
    "data-keep": `tab ${view.key}`,
  });
  tab.append(
    view.difference
      ? el("span", { class: "tab-name" }, "Difference", el("span", { class: "soft" }, isolated(view.name)))
      : el("span", { class: "tab-name" }, isolated(view.name)),
    thumbnail(view, palette),
    el(
      "span",
      { class: "tab-ends soft", "aria-hidden": "true" },
      el("span", {}, view.lengths[0]?.[1] ?? ""),
      el("span", {}, view.lengths.at(-1)?.[1] ?? ""),
    ),
    el("span", { class: "tab-score" }, visible(tabWords(view))),
  );
  return tab;
}

function tabWords(view) {
  if (view.difference) {
    const all = view.difference.json.overall;
    return `${points(all.difference / 100)} points ${differencePrecision(view.difference.json)}`;
  }
  const { overall } = view.run;
  return overall.n
    ? `${percent(overall.score)} ${precision(overall.low, overall.high, overall.n)}`
    : "not measured";
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
