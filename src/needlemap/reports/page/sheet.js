"use strict";
// Views, the tabs that lead to them, and sheets: curves, a table and words about several experiments.

const ROOMY = 8; // views that have a tab each
const HUES = 8; // colours of curves; of more curves only the mean and the one pointed at are told apart
const BANDED = 4; // curves whose intervals can be told apart
const LABEL_HEIGHT = 16; // pixels

// Everything that a summary shows, in its order: the first is what was asked.
function viewsOf(summary) {
  const make = {
    run: (number) => runView(summary, number),
    difference: (number) => differenceView(summary, summary.differences[number]),
    sheet: (number) => sheetView(summary.sheets[number]),
  };
  return summary.views.map(([kind, number]) => ({ ...make[kind](number), to: `${kind} ${number}` }));
}

function sheetView(sheet) {
  return { key: `sheet ${sheet.key}`, name: sheet.name, sheet, runs: [], group: "" };
}

// A tab a view; of many one list.
function drawTabs(views, chosen, palette, choose) {
  const few = views.length <= ROOMY;
  const groups = [...new Set(views.map((view) => view.group))];
  at("tabs").hidden = !few || views.length < 2;
  at("list").hidden = few;
  const option = (view, number) =>
    el("option", { value: number, selected: number === chosen }, `${plain(view.name)}: ${tabWords(view)}`);
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
  tab.append(
    el("span", { class: "tab-name" }, name),
    view.sheet ? (view.sheet.curves.length ? smallCurves(view.sheet) : "") : thumbnail(view, palette),
    tabEnds(view),
    el("span", { class: "tab-score" }, visible(tabWords(view))),
  );
  return tab;
}

function tabEnds(view) {
  const lengths = view.lengths ?? view.sheet.lengths;
  return el(
    "span",
    { class: "tab-ends soft", "aria-hidden": "true" },
    el("span", {}, lengths[0]?.[1] ?? ""),
    el("span", {}, lengths.at(-1)?.[1] ?? ""),
  );
}

function tabWords(view) {
  if (view.sheet) return view.sheet.says;
  if (view.difference) return pairsWords(view.difference.json);
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

// Fills what is written of a sheet with its readings and charts, and gives its rows the letters of their curves.
function dressSheet(sheet, written) {
  const { comparison, curves, squares } = sheet;
  const compared = comparison && !comparison.refused;
  const rows = compared ? differenceReadings({ difference: comparison }) : sheet.readings;
  put(written.querySelector(".readings"), readingNodes(rows));
  if (curves.length) put(written.querySelector(".curves-figure"), curvesNodes(sheet));
  if (squares) put(written.querySelector(".pair"), squares.map(squaresFigure));
  if (!isNamed(curves)) return;
  for (const row of written.querySelectorAll("[data-line]")) row.prepend(chipOf(curves[row.dataset.line], row.dataset.line));
}

// Scores on their colours.
function paintScores(palette) {
  for (const box of document.querySelectorAll("[data-share]")) paintBox(box, colourAt(palette, Number(box.dataset.share)));
}

// Whether curves are few enough for a colour and a name each.
function isNamed(curves) {
  return curves.filter((curve) => !curve.main).length <= HUES;
}

function hueOf(curve, number) {
  return curve.main ? "hue-main" : `hue-${number % HUES}`;
}

// What sessions asked, a row each, and what came of it: a square a request, by time.
const SQUARE = 22; // pixels with its gap
const NAMES = 64;

function squaresFigure({ title, rows, key }) {
  const columns = 1 + Math.max(0, ...rows.flatMap(([, squares]) => squares.map(([column]) => column)));
  const [width, height] = [NAMES + SQUARE * columns, SQUARE * rows.length];
  const spoken = rows.map(([name, squares]) => `${name}: ${squares.map(([, , , says]) => says).join("; ")}`);
  const chart = svg(
    "svg",
    { class: "squares", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": plain(`${title}. ${spoken.join(". ")}`) },
    rows.flatMap(([name, squares], row) => [
      svg("text", { class: "square-name", x: 0, y: row * SQUARE + 15 }, plain(name)),
      ...squares.map((square) => squareNode(square, row)),
    ]),
  );
  styled(chart, { width: `${width}px` });
  const known = key.map(([kind, words]) =>
    el("span", {}, el("span", { class: `square-key ${kind}`, "aria-hidden": "true" }), ` ${words}`),
  );
  return el("figure", { class: "squares-figure" }, el("p", { class: "axis-name" }, visible(title)), chart, el("figcaption", { class: "legend" }, known));
}

function squareNode([column, kind, letter, says, marked], row) {
  const [x, y] = [NAMES + column * SQUARE, row * SQUARE];
  return svg(
    "g",
    { class: `square ${kind} ${marked ? "marked" : ""}` },
    svg("title", {}, plain(says)),
    svg("rect", { x: x + 1.5, y: y + 1.5, width: SQUARE - 4, height: SQUARE - 4, rx: 2 }),
    letter ? svg("text", { x: x + SQUARE / 2 - 0.5, y: y + 15, "text-anchor": "middle" }, plain(letter)) : null,
  );
}

// The letter by which a curve is known in its chart and its table.
function chipOf(curve, number) {
  const letter = String.fromCharCode(65 + Number(number));
  return el("span", { class: `letter ${hueOf(curve, number)}`, "aria-hidden": "true" }, letter);
}

// Tokens as a share of the width, in steps of the logarithm.
function tokenScale(lengths) {
  const [low, high] = [lengths[0]?.[0] ?? 1, lengths.at(-1)?.[0] ?? 1].map(Math.log);
  const span = high - low;
  return (tokens) => (span ? 0.03 + (0.94 * (Math.log(tokens) - low)) / span : 0.5);
}

function curvePoints(curve, scale) {
  return marginPoints(curve, curve.at.map(scale));
}

function curvesNodes(sheet) {
  const { curves, lengths } = sheet;
  const scale = tokenScale(lengths);
  const series = curves.map((curve) => curvePoints(curve, scale));
  const known = isNamed(curves);
  const plot = el(
    "div",
    { class: `curves ${known ? "named" : "many"} ${curves.length <= BANDED ? "banded" : ""}` },
    curvesChart(curves, series, sheet.axis),
    scaleTexts(),
    lengths.map(([tokens, label]) =>
      styled(el("span", { class: "tick", "aria-hidden": "true" }, label), { left: share100(scale(tokens)) }),
    ),
    known ? curves.map((curve, line) => endName(curve, line, series[line])) : null,
    known ? curves.map((curve, line) => holdMark(curve, line, scale)) : null,
    hoverBars(
      lengths.map(([tokens]) => ({ place: scale(tokens) })),
      "x",
      (column) => [`${lengths[column][1]} tokens`, curveFacts(curves, lengths[column][0])],
    ),
  );
  const held = curves.some((curve) => curve.tokens !== null);
  return [
    el("p", { class: "axis-name" }, sheet.axis),
    plot,
    el("p", { class: "axis-name curves-below" }, "prompt length, tokens"),
    el("figcaption", { class: "soft" }, captionOf(sheet, held && known)),
  ];
}

function captionOf(sheet, held) {
  const banded = sheet.curves.filter((curve) => (curve.main || sheet.curves.length <= BANDED) && hasBand(curve));
  const bands = banded.length > 1 ? "Bands: 95 % intervals over haystacks. " : "Band: the mean's 95 % interval. ";
  return [
    banded.length ? bands : "",
    held ? `Dashed: effective length by ${sheet.rule}. ` : "",
    !isNamed(sheet.curves) ? "Point at a row of the table to see its curve. " : "",
  ].join("");
}

function hasBand(curve) {
  return curve.low.some((low) => low !== null);
}

function curvesChart(curves, series, axis) {
  const spot = (place, value) => [100 * place, 100 - 100 * value];
  const spoken = curves.map((curve, line) =>
    marginSpoken(curve.name, series[line], curve.at.map(String)),
  );
  return svg(
    "svg",
    { class: "chart", role: "img", "aria-label": plain(`${axis}: ${spoken.join(". ")}`) },
    [0, 0.25, 0.5, 0.75, 1].map((value) => line(spot(0, value), spot(1, value), "chart-line")),
    series.map((shown, number) =>
      svg(
        "g",
        { class: `curve ${hueOf(curves[number], number)}`, "data-curve": number },
        svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, bands(shown, spot)),
        shown.filter(measured).map((point) => dot(spot, point)),
      ),
    ),
  );
}

function scaleTexts() {
  return [0, 25, 50, 75, 100].map((value) =>
    styled(el("span", { class: "level", "aria-hidden": "true" }, String(value)), { top: share100(1 - value / 100) }),
  );
}

// The curve's name at its end; where it goes is known once it is drawn.
function endName(curve, number, shown) {
  const last = shown.filter(measured).at(-1);
  if (!last) return null;
  const name = el("span", { class: "end-name", "aria-hidden": "true" }, chipOf(curve, number), isolated(curve.name));
  name.wanted = 1 - last.value;
  return name;
}

function holdMark(curve, number, scale) {
  if (curve.tokens === null) return null;
  const mark = el("span", { class: `hold ${hueOf(curve, number)}`, "aria-hidden": "true" }, chipOf(curve, number));
  return styled(mark, { left: share100(scale(curve.tokens)) });
}

function curveFacts(curves, tokens) {
  const facts = curves.map((curve) => {
    const column = curve.at.indexOf(tokens);
    const score = curve.score[column] ?? null;
    const ends = maybe(curve.low[column], (low) => ` ${interval(low, curve.high[column])}`) ?? "";
    return [curve.name, score === null ? null : `${percent(score)} %${ends}`];
  });
  const told = facts.filter(([, value]) => value !== null);
  return told.length > 12 ? [...told.slice(0, 12), ["and", `${told.length - 12} more`]] : told;
}

// A curve as it is pointed at in the table.
function lightCurve(number) {
  for (const curve of document.querySelectorAll("[data-curve]")) {
    curve.classList.toggle("lit", curve.dataset.curve === number);
  }
}

// Puts names where they do not touch, as near as can be to the curves' ends; leaves out ticks without room.
function fitSheet() {
  const plot = document.querySelector(".curves");
  if (!plot || !plot.clientHeight) return;
  const names = [...plot.querySelectorAll(".end-name")].sort((a, b) => a.wanted - b.wanted);
  let free = -Infinity;
  const tops = names.map((name) => (free = Math.max(name.wanted * plot.clientHeight, free + LABEL_HEIGHT)));
  const over = Math.max(0, (tops.at(-1) ?? 0) - plot.clientHeight);
  names.forEach((name, place) => styled(name, { top: `${Math.max(place * LABEL_HEIGHT, tops[place] - over)}px` }));
  thinTicks([...plot.querySelectorAll(".tick")]);
  stack([...plot.querySelectorAll(".hold")], "--row");
}

// Keeps the last of some ticks, the first, and as many between as have room.
function thinTicks(ticks) {
  const boxes = ticks.map((tick) => tick.getBoundingClientRect());
  const last = boxes.length - 1;
  let end = -Infinity;
  ticks.forEach((tick, place) => {
    const { left, right } = boxes[place];
    const fits = place === last || (left >= end && (place === 0 || right + NAME_GAP <= boxes[last].left));
    tick.classList.toggle("thinned", !fits);
    if (fits) end = right + NAME_GAP;
  });
}

// Gives each of some marks the first row in which it touches none; returns how many rows that took.
function stack(marks, property) {
  const ends = [];
  for (const mark of [...marks].sort((a, b) => a.getBoundingClientRect().left - b.getBoundingClientRect().left)) {
    const { left, right } = mark.getBoundingClientRect();
    const free = ends.findIndex((end) => end <= left);
    const row = free < 0 ? ends.length : free;
    ends[row] = right + 4;
    styled(mark, { [property]: row });
  }
  return ends.length;
}

// A sheet's curves for its tab.
function smallCurves(sheet) {
  const scale = tokenScale(sheet.lengths);
  const drawn = sheet.curves.slice(0, HUES + 1).map((curve, number) => {
    const shown = curvePoints(curve, scale).filter(measured);
    const path = corners(
      shown.map((point) => [point.place, point.value]),
      (place, value) => [100 * place, 96 - 92 * value],
    );
    return svg("polyline", { class: `chart-mean ${hueOf(curve, number)}`, points: path });
  });
  const box = { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", { class: "thumbnail small-curves", ...box }, drawn);
}
