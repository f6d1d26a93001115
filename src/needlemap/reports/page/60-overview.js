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
