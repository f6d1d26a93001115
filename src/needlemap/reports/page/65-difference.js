"use strict";
// Two runs compared: the verdict first, then all lines as `needlemap compare` prints them.

function differenceReadings({ difference }) {
  const { json } = difference;
  const all = json.overall;
  return [
    ["Verdict", json.verdict, json.warning, json.warning ? "main warned" : "main"],
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
