"use strict";
// What a run comes to: the readings above its map, the legend under it.

function drawOverview(view, palette) {
  put(at("readings"), readingNodes(readings(view)));
  put(at("legend"), legend(view, palette));
  put(at("beside"), besideNodes(view.run?.beside ?? []));
  at("beside").hidden = !view.run?.beside;
}

function readingNodes(rows) {
  return rows.map(([word, value, note, kind]) =>
    el(
      "div",
      { class: `reading-of ${kind ?? ""}` },
      el("dt", {}, word),
      el("dd", {}, el("b", {}, visible(value)), noteLines(note)),
    ),
  );
}

// Pictures under the map: what was sought.
function besideNodes(pictures) {
  return pictures.map(({ picture, line }) => {
    const image = picture ? el("img", { src: picture, alt: line || "What was sought", class: "beside-map" }) : null;
    const words = line ? el("figcaption", { class: "soft" }, visible(line)) : null;
    return el("figure", { class: "plot" }, [image, words].filter(Boolean));
  });
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
  const failed = totals.missing - totals.unasked;
  const mean = [
    "Mean of all prompts",
    overall.n ? `${percent(overall.score)} %` : "not measured",
    overallNote(overall),
    "main",
  ];
  // What was asked unevenly has no mean.
  return [
    run.sought ? [run.sought.name, run.sought.value, null, "main"] : mean,
    first ? ["Effective length", first.value, first.rule] : null,
    totals.unasked
      ? ["Not sent", count(totals.unasked), `of ${restsOn(run, totals.trials)}`]
      : null,
    [
      "Not measured",
      count(failed),
      `of ${restsOn(run, totals.trials - totals.unasked)}${totals.unasked ? " sent" : ""}`,
      failed ? "warn" : "",
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
      ramp(view.colours(palette), view.dark),
      el(
        "span",
        { class: "ends" },
        ends.map((end) => el("span", {}, end)),
      ),
    ),
    el("span", {}, what),
    swatch(view, "none", "unmeasured", view.difference ? "no pair" : "nothing measured (never a zero)"),
    swatch(view, "some", "partly", "some trials missing"),
    swatch(view, "unasked", "unmeasured unasked", "not sent"),
    swatch(view, "pending", "pending", "some not sent"),
    view.cells.thought?.some(Boolean)
      ? el("span", {}, el("span", { class: "swatch cell thought", "aria-hidden": "true" }), " thinking budget spent")
      : null,
    el("span", {}, legendWords(view)),
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
    return `n = ${each} ${most === 1 ? "pair" : "pairs"} a cell: one cell is a hint where to look, the verdict stands above`;
  if (!view.run.counted) return "each cell is a mean over an unknown number of answers: no n, no interval";
  const trials = most === 1 ? "trial" : "trials";
  return `n = ${each} ${trials} a cell; 95 % intervals: Wilson for a cell, by haystack for bands`;
}

// Two runs compared: what changed at a glance.

function differenceReadings({ difference }) {
  const { json } = difference;
  const all = json.overall;
  return [
    [
      "Difference",
      `${points(all.difference / 100)} points`,
      json.counted
        ? `${differencePrecision(json, "\n")} pairs, ${counted(all.haystacks, "haystack")}`
        : differencePrecision(json),
      "main",
    ],
    json.warnings.length ? ["Warning", "", json.warnings.join(" ").replace(/^warning: /, ""), "warned"] : null,
    ["Scores", `${percent(all.score_a / 100)} → ${percent(all.score_b / 100)}`, "%, A to B"],
    json.counted
      ? ["Changed", `${count(all.lost)} lost`, `${count(all.gained)} gained; p ${probability(all.p)}`]
      : null,
  ].filter(Boolean);
}

// '[-7.3, -1.2] n=54', or how many means over an unknown number of answers.
function differencePrecision({ counted: known, overall }, between = " ") {
  const ends = pointsInterval(overall.low / 100, overall.high / 100);
  return known ? `${ends}${between}n=${count(overall.n)}` : `${counted(overall.n, "mean")} in both`;
}
