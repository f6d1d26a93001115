"use strict";
// What a run comes to: the readings above its map, the legend under it, effective length, words.

function drawOverview(view, palette) {
  put(at("readings"), readingNodes(readings(view)));
  put(at("legend"), legend(view, palette));
  at("verdict").hidden = !view.difference;
  at("effective").hidden = at("lines-section").hidden = Boolean(view.difference);
  put(at("beside"), besideNodes(view.run?.beside ?? []));
  at("beside").hidden = !view.run?.beside;
  drawAnswer(view.difference?.sheet);
  if (view.difference) put(at("verdict"), verdictNodes(view, palette));
  else drawRun(view.run);
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

function drawRun(run) {
  at("effective").hidden = run.effective.length === 0;
  put(at("effective-table"), effectiveTable(run));
  put(
    at("lines"),
    [...run.lines, ...run.notes].map((text) => el("li", {}, visible(text.trim()))),
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
      ? ["Not asked", count(totals.unasked), `of ${restsOn(run, totals.trials)}`]
      : null,
    [
      "Not measured",
      count(failed),
      `of ${restsOn(run, totals.trials - totals.unasked)}${totals.unasked ? " asked" : ""}`,
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
    swatch(view, "unasked", "unmeasured unasked", "not asked"),
    swatch(view, "pending", "pending", "some not asked"),
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

function effectiveTable(run) {
  const rows = run.effective.map((each) => [
    [
      el("span", { class: "rule" }, each.rule),
      el("span", { class: "soft" }, visible(each.says)),
    ],
    [el("b", {}, visible(each.value)), unitOf(each)],
  ]);
  return table(["Rule", "Value [95 % interval]"], rows);
}

// Two runs compared: what changed at a glance, then tables, then all lines of `needlemap compare`, folded.

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

function verdictNodes({ difference }, palette) {
  const { sheet } = difference;
  const tables = [sheet.table, ...(sheet.more ?? [])].map((each) => tableNodes(sheet, each, palette));
  return [
    el("h2", {}, "Comparison"),
    el(
      "p",
      { class: "soft" },
      "Trials are paired by what was asked. Single cells are exploration: they are not corrected for their number.",
    ),
    ...tables.filter(Boolean),
    el(
      "details",
      { class: "fold", "data-keep": "all lines" },
      el("summary", {}, "All that needlemap compare says"),
      linesNode(sheet.lines),
    ),
  ];
}

// Below the map: numbers, what could not be measured, settings, versions and hashes.

function drawNotes(summary, view) {
  const open = new Set(
    [...document.querySelectorAll("#notes details[open]")].map((each) => each.dataset.keep),
  );
  const runs = summary.runs;
  const refused = summary.differences.filter((difference) => difference.refused);
  const sections = [
    view.run ? note(marginName(view.run), () => marginTables(view.run)) : null,
    refused.length ? note("What is not compared, and why", () => refusals(summary, refused)) : null,
    note("What could not be measured", () => failureTables(runs), runs.some(failedIn)),
    note("Tokens, cost and time", () => totalsTable(runs)),
    note("Settings", () => settingsTable(runs, "settings")),
    note("Versions and hashes", () => settingsTable(runs, "facts")),
  ];
  put(at("notes"), sections);
  for (const details of at("notes").children) if (open.has(details.dataset.keep)) details.open = true;
  put(
    at("footer"),
    `needlemap ${plain(summary.version)} · made ${moment(plain(summary.made))} · nothing on this page came from or goes to a network`,
  );
}

// Folded; its content is made when it is first opened or printed.
function note(title, make, open = false) {
  const details = el("details", { open, "data-keep": title }, el("summary", {}, el("h2", {}, title)));
  details.fill = () => details.children.length < 2 && details.append(make());
  details.addEventListener("toggle", () => details.open && details.fill());
  if (open) details.fill();
  return details;
}

function failedIn(run) {
  return run.totals.missing > run.totals.unasked;
}

function marginName(run) {
  return `Numbers by length${run.depthless ? "" : " and depth"}`;
}

function marginTables(run) {
  const row = (margin, name, at) => [
    name,
    margin.n[at] ? percent(margin.score[at]) : "not measured",
    interval(margin.low[at], margin.high[at]),
    count(margin.n[at]),
  ];
  const head = (name) => [name, "Score, %", "95 % interval", "n"];
  return el(
    "div",
    { class: "pair" },
    table(
      head("Length, tokens"),
      run.lengths.map(([tokens], at) => row(run.by_length, count(tokens), at)),
      { class: "numbers" },
    ),
    run.depthless
      ? null
      : table(
          head("Depth"),
          run.by_depth.label.map((label, at) => row(run.by_depth, label, at)),
          { class: "numbers" },
        ),
  );
}

function failureTables(runs) {
  if (!runs.some((run) => run.failures.length))
    return el("p", { class: "soft" }, "Every trial was measured.");
  const rows = runs.flatMap((run) =>
    run.failures.map((failure) => [
      isolated(failure.kind),
      count(failure.count),
      failure.examples.map((example) => prose(example)),
      isolated(run.name),
    ]),
  );
  const all = [["Kind", "Trials", "In the server's or library's words", "Run"], ...rows];
  const [head, ...shown] = runs.length > 1 ? all : all.map((row) => row.slice(0, 3));
  return wide("What could not be measured", table(head, shown, { class: "reflow" }));
}

const RARE = ["thinking_tokens", "judge_usd"]; // told where there is any
const TOTALS = [
  ["trials", "trials", count],
  ["scored", "scored", count],
  ["not measured", "missing", count],
  ["prompt tokens", "prompt_tokens", count],
  ["of which read from a cache", "cached_tokens", count],
  ["of which planned to be shared", "planned_tokens", count],
  ["answer tokens", "completion_tokens", count],
  ["of which thinking", "thinking_tokens", count],
  ["cost, US dollars", "usd", dollars],
  ["the judge's cost, US dollars", "judge_usd", dollars],
  ["sum of latencies", "seconds", seconds],
];

function totalsTable(runs) {
  if (runs.length > COLUMNS) return totalsByRun(runs);
  const known = TOTALS.filter(([, key]) => !RARE.includes(key) || runs.some((run) => run.totals[key]));
  const rows = known.map(([name, key, word]) => [
    name,
    ...runs.map((run) => maybe(run.totals[key], word) ?? "not known"),
  ]);
  const lines = runs.flatMap((run) =>
    run.totals.cache_lines.map((text) => el("p", { class: "soft" }, visible(text))),
  );
  return wide(
    "Tokens, cost and time",
    table(["Sum", ...runs.map((run) => isolated(run.name))], rows, { class: "numbers reflow" }),
    lines,
  );
}

const COLUMNS = 3; // runs that have a column each; of more, equal values are said once

// Of many runs a row each.
function totalsByRun(runs) {
  const known = TOTALS.filter(([, key]) => runs.some((run) => run.totals[key] !== null && run.totals[key] !== undefined));
  const rows = runs.map((run) => [isolated(run.name), ...known.map(([, key, word]) => maybe(run.totals[key], word) ?? NONE)]);
  return wide("Tokens, cost and time", table(["Run", ...known.map(([name]) => name)], rows, { class: "numbers reflow" }));
}

// Of many runs a row a value, with the runs that have it.
function valuesTable(runs, key, names) {
  const rows = names.flatMap((name) => {
    const having = new Map();
    for (const run of runs) {
      const value = run[key].find(([other]) => other === name)?.[1];
      if (value !== undefined) having.set(String(value), [...(having.get(String(value)) ?? []), run.name]);
    }
    return [...having].map(([value, own]) => [
      isolated(name),
      prose(value),
      own.length === runs.length ? "all" : `${own.length} of ${runs.length}: ${plain(own.slice(0, 3).join(", "))}${own.length > 3 ? ", …" : ""}`,
    ]);
  });
  const heads = [key === "facts" ? "What" : "Setting", "Value", "Runs"];
  return wide(key === "facts" ? "Versions and hashes" : "Settings", table(heads, rows, { class: `${key} reflow` }));
}

// A row a name, a column a run; what differs between runs, or from the default, is marked.
function settingsTable(runs, key) {
  const names = [...new Set(runs.flatMap((run) => run[key].map(([name]) => name)))];
  if (runs.length > COLUMNS) return valuesTable(runs, key, names);
  const rows = names.map((name) =>
    settingRow(
      name,
      runs.map((run) => run[key].find(([other]) => other === name)),
    ),
  );
  const marks = [
    rows.some((row) => row.class.includes("changed"))
      ? "• set for this run; without a mark: the default. "
      : "",
    rows.some((row) => row.class.includes("differs")) ? "≠ differs between the runs." : "",
  ].join("");
  return wide(
    key === "facts" ? "Versions and hashes" : "Settings",
    marks ? el("p", { class: "soft" }, marks) : null,
    table([key === "facts" ? "What" : "Setting", ...runs.map((run) => isolated(run.name))], rows, {
      class: `${key} reflow`,
    }),
  );
}

function settingRow(name, found) {
  const differs = new Set(found.map((each) => each?.[1])).size > 1;
  const changed = found.some((each) => each?.[2]);
  const marks = `${differs ? "≠ " : ""}${changed ? "• " : ""}`;
  const cells = [
    el("span", {}, el("span", { class: "sign" }, marks), isolated(name)),
    ...found.map((each) => prose(each ? String(each[1]) : NONE)),
  ];
  return { class: `${differs ? "differs" : ""} ${changed ? "changed" : ""}`, cells };
}
