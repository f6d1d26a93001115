"use strict";
// What a run comes to: the readings above its map, the legend under it, effective length, words.

function drawOverview(view, palette) {
  put(
    at("readings"),
    readings(view).map(([word, value, note, kind]) =>
      el(
        "div",
        { class: `reading-of ${kind ?? ""}` },
        el("dt", {}, word),
        el("dd", {}, el("b", {}, visible(value)), noteLines(note)),
      ),
    ),
  );
  put(at("legend"), legend(view, palette));
  at("verdict").hidden = !view.difference;
  at("effective").hidden = at("lines-section").hidden = Boolean(view.difference);
  if (view.difference) put(at("verdict"), verdictNodes(view));
  else drawRun(view.run);
}

function drawRun(run) {
  at("effective").hidden = run.effective.length === 0;
  put(at("effective-table"), effectiveTable(run));
  put(
    at("lines"),
    [...run.lines, ...run.notes].map((text) => el("li", {}, visible(text.trim()))),
  );
}

function noteLines(note) {
  return (note ?? "")
    .split("\n")
    .filter(Boolean)
    .map((text) => el("span", { class: "soft" }, visible(text)));
}

// Rows of word, value, note, kind.
function readings(view) {
  return view.difference ? differenceReadings(view) : runReadings(view.run);
}

function runReadings(run) {
  const { overall, totals } = run;
  const [first] = run.effective;
  return [
    [
      "Mean of all prompts",
      overall.n ? `${percent(overall.score)} %` : "not measured",
      overallNote(overall),
      "main",
    ],
    first ? ["Effective length", first.value, first.rule] : null,
    [
      "Not measured",
      count(totals.missing),
      `of ${restsOn(run, totals.trials)}`,
      totals.missing ? "warn" : "",
    ],
    totals.prompt_tokens === null
      ? null
      : ["Prompt tokens", compact(totals.prompt_tokens), cacheNote(totals)],
    totals.seconds === null
      ? null
      : [
          "Cost",
          maybe(totals.usd, dollars) ?? "not known",
          [
            maybe(totals.judge_usd, (value) => `and ${dollars(value)} for the judge`),
            maybe(totals.seconds, (value) => `${seconds(value)} of latency`),
          ]
            .filter(Boolean)
            .join("\n"),
        ],
  ].filter(Boolean);
}

function unitOf(effective) {
  if (effective.value.startsWith("-")) return ""; // no value, and why
  return effective.rule.startsWith("auc") ? " %" : " tokens";
}

function overallNote(overall) {
  if (!overall.n) return null;
  if (overall.low === null) return `${counted(overall.n, "mean")}\nof how many answers, nobody knows`;
  const haystacks = overall.clusters ? `, ${counted(overall.clusters, "haystack")}` : "";
  return `${interval(overall.low, overall.high)}\nn=${count(overall.n)}${haystacks}`;
}

function cacheNote(totals) {
  const share = (tokens, word) =>
    totals.prompt_tokens ? `${Math.round((100 * tokens) / totals.prompt_tokens)} % ${word}` : null;
  const seen = maybe(totals.cached_tokens, (tokens) => share(tokens, "cached"));
  const planned = maybe(totals.planned_tokens, (tokens) => share(tokens, "planned"));
  return [seen, planned].filter(Boolean).join(", ") || null;
}

// The colours' scale, and what hatching, corners, n and bands mean.
function legend(view, palette) {
  const ends = view.difference ? [-view.most, 0, view.most].map(wholePoints) : ["0", "25", "50", "75", "100"];
  const what = view.difference ? "points, loss to gain" : "%, mean score of a cell";
  return [
    el(
      "span",
      { class: "scale" },
      ramp(view.colours(palette)),
      el(
        "span",
        { class: "ends" },
        ends.map((end) => el("span", {}, end)),
      ),
    ),
    el("span", {}, what),
    swatch(view, "none", "unmeasured", view.difference ? "no pair" : "nothing measured (never a zero)"),
    swatch(view, "some", "partly", "some trials missing"),
    el("span", {}, legendWords(view)),
    el("span", { class: "cramped-note" }, "the cells are too small for values here"),
  ];
}

function swatch(view, state, name, words) {
  if (!view.cells.depth.some((_, cell) => view.missing(cell) === state)) return null;
  return el("span", {}, el("span", { class: `swatch cell ${name}`, "aria-hidden": "true" }), ` ${words}`);
}

function legendWords(view) {
  const { n } = view.cells;
  const [least, most] = [Math.min(...n), Math.max(...n)];
  const each = least === most ? String(most) : `${least} to ${most}`;
  if (view.difference)
    return `n = ${each} ${most === 1 ? "pair" : "pairs"} a cell: one cell is a hint where to look, the verdict is below`;
  if (!view.run.counted) return "each cell is a mean of nobody knows how many answers: no n, no interval";
  const trials = most === 1 ? "trial" : "trials";
  return `n = ${each} ${trials} a cell; 95 % intervals: Wilson for a cell, by haystack for bands`;
}

function effectiveTable(run) {
  const rows = run.effective.map((each, at) => [
    [
      el("span", { class: "rule" }, markNumber(run, at), ` ${each.rule}`),
      el("span", { class: "soft" }, visible(each.says)),
    ],
    [el("b", {}, visible(each.value)), unitOf(each)],
  ]);
  return table(["Rule", "Value [95 % interval]"], rows);
}

// The number of a rule that has a place on the length chart.
function markNumber(run, at) {
  return run.effective[at].tokens === null ? null : el("span", { class: "mark-number" }, String(at + 1));
}

// Two runs compared: the verdict first, then all lines as `needlemap compare` prints them.

function differenceReadings({ difference }) {
  const { json } = difference;
  const all = json.overall;
  return [
    ["Verdict", verdictOf(json), json.warning, json.warning ? "main warned" : "main"],
    [
      "Difference",
      `${points(all.difference / 100)} points`,
      json.counted
        ? `${differencePrecision(json, "\n")} pairs, ${counted(all.haystacks, "haystack")}`
        : differencePrecision(json),
    ],
    ["Scores", `${percent(all.score_a / 100)} → ${percent(all.score_b / 100)}`, "%, A to B"],
    json.counted
      ? ["Changed", `${count(all.lost)} lost`, `${count(all.gained)} gained; p ${probability(all.p)}`]
      : null,
  ].filter(Boolean);
}

// Fewer than five haystacks tell about themselves only.
function verdictOf({ verdict, counted: known, of_these_haystacks: ofThese }) {
  return known && ofThese ? `${verdict}, of these haystacks only` : verdict;
}

// '[-7.3, -1.2] n=54', or how many means of nobody knows how many answers.
function differencePrecision({ counted: known, overall }, between = " ") {
  const ends = pointsInterval(overall.low / 100, overall.high / 100);
  return known ? `${ends}${between}n=${count(overall.n)}` : `${counted(overall.n, "mean")} in both`;
}

function verdictNodes({ difference }) {
  return [
    el("h2", {}, "Comparison"),
    el(
      "p",
      { class: "soft" },
      "Trials are paired by what was asked. Single cells are exploration: they are not corrected for their number.",
    ),
    el("pre", {}, visible(difference.text.join("\n"))),
  ];
}

// Why some runs are not compared.
function drawRefused(summary) {
  const refused = summary.differences.filter((difference) => difference.refused);
  at("refused").hidden = refused.length === 0;
  put(
    at("refused"),
    refused.map(({ a, b, refused: why }) =>
      el(
        "p",
        {},
        el("b", {}, "Not compared: "),
        isolated(summary.runs[a].name),
        " with ",
        isolated(summary.runs[b].name),
        ". ",
        visible(why),
      ),
    ),
  );
}

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
