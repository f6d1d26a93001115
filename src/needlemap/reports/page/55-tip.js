"use strict";
// The box that names what the pointer or the keyboard is on. Screen readers get the same words from the cell.

const TIP_GAP = 10; // pixels

function showTip(anchor, title, facts) {
  const tip = at("tip");
  put(tip, el("p", { class: "tip-title" }, visible(title)), factList(facts));
  tip.hidden = false;
  placeTip(tip, anchor.getBoundingClientRect());
}

function hideTip() {
  at("tip").hidden = true;
}

// Above its anchor where there is room, else below; never outside the window.
function placeTip(tip, anchor) {
  const { width, height } = tip.getBoundingClientRect();
  const left = anchor.left + anchor.width / 2 - width / 2;
  const above = anchor.top - height - TIP_GAP;
  const most = document.documentElement.clientWidth - width - 4;
  styled(tip, {
    left: `${Math.max(4, Math.min(left, most))}px`,
    top: `${above >= 4 ? above : anchor.bottom + TIP_GAP}px`,
  });
}

// Pairs of a word and a value as a list.
function factList(facts, attributes = { class: "facts" }) {
  return el(
    "dl",
    attributes,
    facts.map(([word, value]) =>
      el("div", {}, el("dt", {}, word), el("dd", {}, value instanceof Node ? value : visible(String(value)))),
    ),
  );
}
