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
    thresholds.map((value) => line(spot(0, value), spot(1, value), "chart-threshold")),
    svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, bands(points, spot)),
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
