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
  thin(grid.querySelectorAll(".length-name"), width / columns, widest(grid.querySelectorAll(".length-name")) + NAME_GAP);
  thin(grid.querySelectorAll(".depth-name"), height / grid.querySelectorAll(".depth-name").length, ROW_HEIGHT);
  thin(at("by-length").querySelectorAll(".count"), width / columns, widest(at("by-length").querySelectorAll(".count")) + NAME_GAP);
  thin(at("by-depth").querySelectorAll(".count"), height / Math.max(1, at("by-depth").querySelectorAll(".count").length), ROW_HEIGHT);
  grid.classList.toggle("cramped", Math.min((width / columns / digitsOf(view)) * 1.5, (height / rowCount(view)) * 0.8) < READABLE);
}

// Hides all but every k-th element, so that those of one step apart have the room they need.
function thin(elements, step, need) {
  const every = Math.max(1, Math.ceil(need / step));
  elements.forEach((element, at) => element.classList.toggle("thinned", at % every !== 0));
}

function widest(elements) {
  return Math.max(0, ...Array.from(elements, (element) => element.offsetWidth));
}
