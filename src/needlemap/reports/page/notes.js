"use strict";
// Below the map: numbers, what could not be measured, settings, versions and hashes.

function drawNotes(summary, view) {
  const open = new Set(
    [...document.querySelectorAll("#notes details[open]")].map((each) => each.dataset.keep),
  );
  const runs = summary.runs;
  const sections = [
    ...(view.difference ? [] : [note(marginName(view.run), marginTables(view.run))]),
    note(
      "What could not be measured",
      failureTables(runs),
      runs.some((run) => run.failures.length),
    ),
    note("Tokens, cost and time", totalsTable(runs)),
    note("Settings", settingsTable(runs, "settings")),
    note("Versions and hashes", settingsTable(runs, "facts")),
  ];
  put(at("notes"), sections);
  for (const details of at("notes").children) if (open.has(details.dataset.keep)) details.open = true;
  put(
    at("footer"),
    `needlemap ${plain(summary.version)} · made ${moment(plain(summary.made))} · nothing on this page came from or goes to a network`,
  );
}

function note(title, content, open = false) {
  return el("details", { open, "data-keep": title }, el("summary", {}, el("h2", {}, title)), content);
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
  return el("div", { class: "wide" }, table(head, shown));
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
  const known = TOTALS.filter(([, key]) => !RARE.includes(key) || runs.some((run) => run.totals[key]));
  const rows = known.map(([name, key, word]) => [
    name,
    ...runs.map((run) => maybe(run.totals[key], word) ?? "not known"),
  ]);
  const lines = runs.flatMap((run) =>
    run.totals.cache_lines.map((text) => el("p", { class: "soft" }, visible(text))),
  );
  return el(
    "div",
    { class: "wide" },
    table(["Sum", ...runs.map((run) => isolated(run.name))], rows, { class: "numbers" }),
    lines,
  );
}

// A row a name, a column a run; what differs between runs, or from the default, is marked.
function settingsTable(runs, key) {
  const names = [...new Set(runs.flatMap((run) => run[key].map(([name]) => name)))];
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
  return el(
    "div",
    { class: "wide" },
    marks ? el("p", { class: "soft" }, marks) : null,
    table([key === "facts" ? "What" : "Setting", ...runs.map((run) => isolated(run.name))], rows, {
      class: key,
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
