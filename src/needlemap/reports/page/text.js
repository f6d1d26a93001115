"use strict";
// Elements. Every text that comes from a run becomes a text node: nothing in it can become markup.

const SVG = "http://www.w3.org/2000/svg";

// An HTML element with attributes and children; texts become text nodes, null is left out.
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// A picture that Python drew: its texts were escaped there, and nothing in it can run.
function drawn(text) {
  return document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
}

// An SVG element without children.
function svg(tag, attributes) {
  return filled(document.createElementNS(SVG, tag), attributes, []);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// The element of an id of the skeleton.
function at(id) {
  return document.getElementById(id);
}

// Puts children in the place of what an element holds.
function put(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// CSS properties of one element: the page's policy forbids style attributes, not these.
function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}

// A button that does one thing.
function button(label, does, attributes = {}) {
  const made = el("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", does);
  return made;
}

// Text that a model or a server wrote: shown as it is, with what cannot be seen made visible.

// Control, format and unpaired characters; joiners stay, as scripts and emoji need them.
const UNSEEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]+/gu;
const CONTROLS = (
  "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI " +
  "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split(" ");
const SHOWN_CHARS = 1500; // of a long text, until asked for all
const MOST_MARKS = 50; // of one word in one text

// A name for one unseen character: as ASCII calls it, or its number. Few fonts have pictures of them.
function picture(character) {
  const code = character.codePointAt(0);
  if (code === 127) return "DEL";
  return CONTROLS[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

// A text for attributes and titles, where no element can be.
function plain(text) {
  return String(text).replace(UNSEEN, (run) => Array.from(run, picture).join(" "));
}

// Nodes of a text: text nodes, and a span for each run of unseen characters.
function visible(text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > from) nodes.push(text.slice(from, match.index));
    nodes.push(el("bdi", { class: "unseen" }, Array.from(match[0], picture).join(" ")));
    from = match.index + match[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

// A name or value in line with our own words: it cannot turn their direction.
function isolated(text) {
  return el("bdi", {}, visible(String(text)));
}

// Where words stand in a text, in any case: sorted pairs of start and end that do not overlap.
function marksOf(text, words) {
  const folded = text.toLowerCase();
  if (folded.length !== text.length) return []; // a letter that folds to two would shift all marks
  const marks = words.filter(Boolean).flatMap((word) => placesOf(folded, word.toLowerCase()));
  let end = 0;
  return marks.sort((a, b) => a[0] - b[0] || b[1] - a[1]).filter((mark) => mark[0] >= end && (end = mark[1]));
}

function placesOf(text, word) {
  const places = [];
  let place = text.indexOf(word);
  while (place >= 0 && places.length < MOST_MARKS) {
    places.push([place, place + word.length]);
    place = text.indexOf(word, place + word.length);
  }
  return places;
}

// Nodes of a text with its marks.
function marked(text, words) {
  const nodes = [];
  let from = 0;
  for (const [start, end] of marksOf(text, words)) {
    nodes.push(...visible(text.slice(from, start)), el("mark", {}, visible(text.slice(start, end))));
    from = end;
  }
  return [...nodes, ...visible(text.slice(from))];
}

// A block of somebody's text, in its own direction. cut: characters that are not in the file.
function prose(text, { marks = [], cut = 0 } = {}) {
  const block = el("div", { class: "prose", dir: "auto" });
  if (text === "") return put(block, el("span", { class: "soft" }, "(empty)"));
  if (text.length <= SHOWN_CHARS * 1.2) return put(block, marked(text, marks), cutNote(cut));
  const more = button(
    `Show all ${count(text.length)} characters`,
    () => {
      put(block, marked(text, marks), cutNote(cut));
      block.setAttribute("tabindex", "-1");
      block.focus();
    },
    { class: "more" },
  );
  return put(block, marked(whole(text.slice(0, SHOWN_CHARS)), marks), "… ", more, cutNote(cut));
}

// Without half a character at its end.
function whole(text) {
  return /[\ud800-\udbff]$/.test(text) ? text.slice(0, -1) : text;
}

function cutNote(cut) {
  return cut
    ? el("p", { class: "soft" }, `${count(cut)} more characters are in the run's records only.`)
    : null;
}

// Counts of what is listed. All other numbers come as words, made in Python.

function count(number) {
  return number.toLocaleString("en-US");
}

function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function maybe(value, word) {
  return value === null || value === undefined ? null : word(value);
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
