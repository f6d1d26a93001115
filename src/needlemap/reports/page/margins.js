"use strict";
// The margins: mean score by length and by depth with 95 % bands, aligned with the map's columns and rows.
// Places are shares of the width and height, so that a chart fits its map on any screen and on paper.

// points: {place, low, value, high, n} as shares, in order; value null where nothing was measured.
function bandChart(points, along, { label, lines = [], thresholds = [], marks = [] }) {
  const spot = (place, value) =>
    along === "x" ? [100 * place, 100 - 100 * value] : [100 * value, 100 * place];
  return svg(
    "svg",
    { class: "chart", role: "img", "aria-label": plain(label) },
    lines.map((value) => line(spot(0, value), spot(1, value), "chart-line")),
    svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, bands(points, spot)),
    thresholds.map((value) => line(spot(0, value), spot(1, value), "chart-threshold")),
    marks.map((mark) => markLine(spot, mark)),
    points.filter(measured).map((point) => dot(spot, point)),
  );
}

function measured(point) {
  return point.value !== null && point.value !== undefined;
}

function line([x1, y1], [x2, y2], name) {
  return svg("line", { class: name, x1: `${x1}%`, y1: `${y1}%`, x2: `${x2}%`, y2: `${y2}%` });
}

function dot(spot, point) {
  const [x, y] = spot(point.place, point.value);
  return svg("circle", { class: "chart-dot", cx: `${x}%`, cy: `${y}%`, r: 2.4 });
}

function markLine(spot, mark) {
  return line(spot(mark.place, 0), spot(mark.place, 1), "chart-mark");
}

// Bands and lines of each unbroken piece; a gap is where nothing was measured.
function bands(points, spot) {
  return pieces(points).flatMap((piece) => [
    svg("polygon", { class: "chart-band", points: corners(outline(piece), spot) }),
    svg("polyline", {
      class: "chart-mean",
      points: corners(
        piece.map((p) => [p.place, p.value]),
        spot,
      ),
    }),
  ]);
}

function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (measured(point)) found[found.length - 1].push(point);
    else found.push([]);
  }
  return found.filter((piece) => piece.length);
}

// Around a band; one point alone is a bar of some width.
function outline(piece) {
  const [only] = piece;
  if (piece.length === 1) {
    return [
      [-1, "low"],
      [1, "low"],
      [1, "high"],
      [-1, "high"],
    ].map(([way, end]) => [only.place + way * 0.006, endOf(only, end)]);
  }
  const back = [...piece].reverse();
  return [...piece.map((p) => [p.place, endOf(p, "low")]), ...back.map((p) => [p.place, endOf(p, "high")])];
}

function endOf(point, end) {
  return point[end] ?? point.value;
}

function corners(places, spot) {
  return places
    .map(([place, value]) =>
      spot(place, value)
        .map((x) => Number(x.toFixed(3)))
        .join(","),
    )
    .join(" ");
}

// The points of a margin; places: where along the map each stands.
function marginPoints(margin, places) {
  return places.map((place, at) => ({
    place,
    value: margin.score[at],
    low: margin.low[at],
    high: margin.high[at],
    n: margin.n[at],
  }));
}

function lengthPlaces(view) {
  return view.lengths.map((_, column) => (column + 0.5) / view.lengths.length);
}

// Depths along the map's rows: the middle of a row, or the depth itself where rows have none.
function depthPlaces(view, shares) {
  if (view.ragged) return shares;
  return shares.map((share) => (view.depths.findIndex(([depth]) => depth === share) + 0.5) / view.rows);
}

// Where a number of tokens stands among the columns, in steps of the logarithm between two.
function tokenPlace(lengths, tokens) {
  const last = lengths.length - 1;
  const right = lengths.findIndex(([length]) => length >= tokens);
  if (right === 0 || last === 0) return 0.5 / lengths.length;
  if (right < 0) return (last + 0.5) / lengths.length;
  const [low, high] = [lengths[right - 1][0], lengths[right][0]];
  const share = (Math.log(tokens) - Math.log(low)) / (Math.log(high) - Math.log(low));
  return (right - 0.5 + share) / lengths.length;
}

// Bars over a chart that show the numbers of one point on hover.
function hoverBars(points, along, words) {
  return points.map((point, at) => {
    const [low, high] = [points[at - 1]?.place, points[at + 1]?.place].map((other) =>
      maybe(other, (place) => (place + point.place) / 2),
    );
    const [from, to] = [low ?? 0, high ?? 1];
    const bar = el("span", { class: "hover-bar" });
    bar.facts = words(at);
    return styled(
      bar,
      along === "x"
        ? { left: share100(from), width: share100(to - from), top: "0", height: "100%" }
        : { top: share100(from), height: share100(to - from), left: "0", width: "100%" },
    );
  });
}

// The two charts about the map, and the numbers along its sides.

function drawMargins(view) {
  at("frame").classList.toggle("depthless", Boolean(view.difference || view.run.depthless));
  if (view.difference) drawDifferenceMargins(view);
  else drawRunMargins(view);
}

function drawRunMargins(view) {
  const { run } = view;
  const lengths = marginPoints(run.by_length, lengthPlaces(view));
  const depths = marginPoints(run.by_depth, depthPlaces(view, run.by_depth.at));
  const scale = { lines: [0, 0.5, 1] };
  const names = run.lengths.map(([, name]) => name);
  const marks = lengthMarks(view);
  const thresholds = run.effective.map((each) => each.threshold).filter((share) => share !== null);
  put(at("over-name"), "Score by length, %", scaleNames(["100", "50", "0"]));
  put(
    at("by-length"),
    bandChart(lengths, "x", {
      ...scale,
      thresholds,
      marks,
      label: marginSpoken("Score by length", lengths, names),
    }),
    marks.map(markName),
    counts(lengths, "x"),
    hoverBars(lengths, "x", (at) => [overDepths(view, run.lengths[at][1]), marginFacts(lengths[at])]),
  );
  if (run.depthless) dropDepthMargin();
  else drawDepthMargin(run, depths, scale);
}

function overDepths(view, length) {
  return `${length} tokens${view.depthless ? "" : ", all depths"}`;
}

function drawDepthMargin(run, depths, scale) {
  put(
    at("by-depth"),
    bandChart(depths, "y", { ...scale, label: marginSpoken("Score by depth", depths, run.by_depth.label) }),
    counts(depths, "y"),
    hoverBars(depths, "y", (at) => [`depth ${run.by_depth.label[at]}, all lengths`, marginFacts(depths[at])]),
  );
  put(at("beside-name"), scaleNames(["0", "50", "100"]), el("span", {}, "by depth, %"));
}

function dropDepthMargin() {
  put(at("by-depth"));
  put(at("beside-name"));
}

// The loss at each length, about a line of none; what is worse is lower.
function drawDifferenceMargins(view) {
  const { lengths, counted: known } = view.difference.json;
  const places = new Map(view.lengths.map(([tokens], column) => [tokens, column]));
  const ends = lengths.flatMap((each) => (known ? [each.low, each.high] : [each.loss]));
  const most = symmetric(ends.map((end) => end / 100));
  const onScale = (value) => Math.min(Math.max((1 - value / 100 / most) / 2, 0), 1);
  const shown = lengths.map((each) => ({
    place: (places.get(each.length_tokens) + 0.5) / view.lengths.length,
    n: each.n,
    value: onScale(each.loss),
    low: known ? onScale(each.high) : null,
    high: known ? onScale(each.low) : null,
  }));
  const words = (at) => [
    overDepths(view, view.lengths[places.get(lengths[at].length_tokens)][1]),
    lengthFacts(lengths[at], known),
  ];
  const spoken = lengths.map((_, at) => words(at).flat(2).join(" "));
  put(
    at("over-name"),
    "Loss by length, points",
    scaleNames([wholePoints(-most), "0", wholePoints(most)]),
  );
  put(
    at("by-length"),
    bandChart(shown, "x", { lines: [0, 0.5, 1], label: `Loss by length: ${spoken.join("; ")}` }),
    counts(shown, "x"),
    hoverBars(shown, "x", words),
  );
  dropDepthMargin();
}

function lengthFacts(each, known) {
  const loss = ["loss", `${points(each.loss / 100)} points`];
  if (!known) return [loss, ["n", counted(each.n, "mean")]];
  return [
    loss,
    ["interval", pointsInterval(each.low / 100, each.high / 100)],
    ["n", counted(each.n, "pair")],
    ["p by Holm's correction", probability(each.p_holm)],
  ];
}

function scaleNames(names) {
  return el(
    "span",
    { class: "scale-names", "aria-hidden": "true" },
    names.map((name) => el("span", {}, name)),
  );
}

// n of each point, written along the map's side.
function counts(shown, along) {
  const side = along === "x" ? "left" : "top";
  return el(
    "span",
    { class: `counts ${along}`, "aria-hidden": "true" },
    el("span", { class: "counts-name" }, "n"),
    shown.map((point) =>
      styled(el("span", { class: "count" }, String(point.n)), { [side]: share100(point.place) }),
    ),
  );
}

// Where rules put the effective length, and what that is called; rules of one place share a line.
function lengthMarks(view) {
  const marks = new Map();
  for (const each of view.run.effective) {
    if (each.tokens === null) continue;
    const place = tokenPlace(view.lengths, each.tokens);
    const key = Math.round(place * 60);
    const { rules = [], value = each.value.split(" ")[0] } = marks.get(key) ?? {};
    marks.set(key, { place: marks.get(key)?.place ?? place, rules: [...rules, each.rule], value });
  }
  return [...marks.values()].sort((a, b) => a.place - b.place);
}

// A mark's rules and length, over its line.
function markName(mark) {
  const name = el("span", { class: "mark-name", "aria-hidden": "true" }, mark.rules.join(", "), " ", el("b", {}, mark.value));
  name.place = mark.place;
  return name;
}

// Keeps the names of marks on the chart, each in a row in which it touches no other; returns how many rows.
function fitMarks(width) {
  const marks = [...at("by-length").querySelectorAll(".mark-name")];
  for (const mark of marks) {
    const most = Math.max(0, width - mark.offsetWidth);
    styled(mark, { left: `${Math.min(Math.max(0, mark.place * width - mark.offsetWidth / 2), most)}px` });
  }
  return stack(marks, "--row");
}

// Hides all but the last and every k-th element, so that those of one step apart have the room they need.
function thin(elements, step, need) {
  const [every, last] = [Math.max(1, Math.ceil(need / step)), elements.length - 1];
  elements.forEach((element, at) => {
    const shown = at === last || (at % every === 0 && last - at >= every);
    element.classList.toggle("thinned", !shown);
  });
}

function widest(elements) {
  return Math.max(0, ...Array.from(elements, (element) => element.offsetWidth));
}

function marginFacts(point) {
  if (!measured(point)) return [["score", "not measured"]];
  return [
    ["score", `${percent(point.value)} %`],
    ["95 % interval", maybe(point.low, () => interval(point.low, point.high))],
    ["n", counted(point.n, point.low === null ? "mean" : "trial")],
  ].filter(([, value]) => value !== null);
}

function marginSpoken(title, shown, names) {
  const said = shown.map(
    (point, at) =>
      `${names[at]}: ${marginFacts(point)
        .map(([, value]) => value)
        .join(" ")}`,
  );
  return `${title}: ${said.join("; ")}`;
}
