"use strict";
// Fits names to the room there is: every k-th name of an axis, and values only where they can be read.

const NAME_GAP = 8; // pixels between two names
const ROW_HEIGHT = 13; // of a name of the depth axis
const READABLE = 7; // pixels of the smallest digits

function fitMap() {
  const grid = at("grid");
  const { width, height } = grid.getBoundingClientRect();
  if (!width || !state.views.length) return;
  const view = shownView();
  const columns = view.lengths.length;
  for (const names of [grid.querySelectorAll(".length-name"), at("by-length").querySelectorAll(".count")]) {
    thin(names, width / names.length, widest(names) + NAME_GAP);
  }
  for (const names of [grid.querySelectorAll(".depth-name"), at("by-depth").querySelectorAll(".count")]) {
    thin(names, height / names.length, ROW_HEIGHT);
  }
  grid.classList.toggle(
    "cramped",
    Math.min((width / columns / digitsOf(view)) * 1.5, (height / rowCount(view)) * 0.8) < READABLE,
  );
}

// Hides all but every k-th element, so that those of one step apart have the room they need.
function thin(elements, step, need) {
  const every = Math.max(1, Math.ceil(need / step));
  elements.forEach((element, at) => element.classList.toggle("thinned", at % every !== 0));
}

function widest(elements) {
  return Math.max(0, ...Array.from(elements, (element) => element.offsetWidth));
}
