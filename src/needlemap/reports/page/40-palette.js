"use strict";
// Colours of scores on a fixed scale, never stretched to the data, so that maps can be compared.

// Loss to gain, told apart by all kinds of colour vision.
const DIVERGING = ["#7F3B08", "#D9822B", "#F3F2EE", "#5B9BD5", "#173F73"];

const PALETTE_WORDS = {
  amber: "amber (red to green)",
  cividis: "cividis (colour-blind safe)",
  grey: "grey (print)",
};

// Red, green, blue of a share in [0, 1], linear between the two nearest stops.
function colourAt(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const left = Math.min(Math.floor(place), stops.length - 2);
  const [low, high] = [rgb(stops[left]), rgb(stops[left + 1])];
  return low.map((value, channel) => Math.round(value + (high[channel] - value) * (place - left)));
}

function rgb(hex) {
  return [1, 3, 5].map((place) => Number.parseInt(hex.slice(place, place + 2), 16));
}

function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

// Black or white, whichever reads better on a colour (relative luminance, WCAG 2.2).
function inkOn(colour) {
  const [red, green, blue] = colour.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// Fills an element with a colour, and its text with what reads on it; null takes both away.
function paintBox(box, colour) {
  styled(box, { "background-color": colour ? css(colour) : "", color: colour ? inkOn(colour) : "" });
}

// A bar of a palette's colours.
function ramp(stops) {
  return styled(el("span", { class: "ramp" }), {
    "background-image": `linear-gradient(to right, ${stops.join(",")})`,
  });
}

// The smallest round number of points that holds all values; a scale both ways from zero.
function symmetric(values) {
  const most = Math.max(0, ...values.filter((value) => value !== null).map(Math.abs));
  return [0.05, 0.1, 0.2, 0.5].find((round) => most <= round) ?? 1;
}
