"use strict";
// Two runs compared: the verdict first, then all lines as `needlemap compare` prints them.

function differenceReadings({ difference }) {
  const { json } = difference;
  const all = json.overall;
  const [change, low, high] = [all.difference, all.low, all.high].map((value) => value / 100);
  return [
    ["Verdict", json.verdict, json.warning, json.warning ? "main warned" : "main"],
    [
      "Difference",
      `${points(change)} points`,
      `${pointsInterval(low, high)}\nn=${counted(all.n, "pair")}, ${counted(all.haystacks, "haystack")}`,
    ],
    ["Scores", `${percent(all.score_a / 100)} → ${percent(all.score_b / 100)}`, "%, A to B"],
    ["Changed", `${count(all.lost)} lost`, `${count(all.gained)} gained; p ${probability(all.p)}`],
  ];
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
