"use strict";
// Elements. Every text that comes from a run becomes a text node: nothing in it can become markup.

const SVG = "http://www.w3.org/2000/svg";

// An HTML element with attributes and children; texts become text nodes, null is left out.
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// The same for SVG.
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
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

// Numbers as words, the same everywhere: scores in percent, units always named.

const NONE = "–";

// A share in percent, rounded as every report rounds it: twin of `in_percent` in labels.py.
function inPercent(share, digits = 1) {
  const parts = Math.floor(Math.abs(Number(share.toFixed(6))) * 10 ** (digits + 2) + 0.5 + 1e-6);
  return (Math.sign(share) * parts) / 10 ** digits;
}

// 0.925 as '92.5'.
function percent(share) {
  return share === null || share === undefined ? NONE : inPercent(share).toFixed(1);
}

// The same without decimals, for small cells: only a perfect score is 100.
function wholePercent(share) {
  return String(share >= 1 ? 100 : Math.min(inPercent(share, 0), 99));
}

// A difference of shares with its sign, in points: '-7.3'.
function points(share, digits = 1) {
  const value = inPercent(share, digits);
  return `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(digits)}`;
}

// The same without decimals, for scales and small cells.
function wholePoints(share) {
  return points(share, 0).replace(/^\+0$/, "0");
}

// '[+1.2, +11.0]'.
function pointsInterval(low, high) {
  return `[${points(low)}, ${points(high)}]`;
}

// '[83.1, 97.0]'.
function interval(low, high) {
  return low === null || low === undefined ? NONE : `[${percent(low)}, ${percent(high)}]`;
}

// A whole number with separators.
function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

// A large number in short: 23543124 as '23.5M'.
function compact(number) {
  if (number < 10_000) return count(number);
  const [size, unit] = number < 1_000_000 ? [1_000, "k"] : number < 1e9 ? [1_000_000, "M"] : [1e9, "G"];
  return `${Number((number / size).toPrecision(3))}${unit}`;
}

function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

// '[83.1, 97.0] n=20'; a mean of an unknown number of answers has neither.
function precision(low, high, number) {
  return low === null ? counted(number, "mean") : `${interval(low, high)} n=${count(number)}`;
}

// How many trials a score rests on, or means.
function restsOn(run, number) {
  return counted(number, run.counted ? "trial" : "mean");
}

function overallNote(overall) {
  if (!overall.n) return null;
  if (overall.low === null) return `${counted(overall.n, "mean")}\nover an unknown number of answers`;
  const haystacks = overall.clusters ? `, ${counted(overall.clusters, "haystack")}` : "";
  const withheld = overall.withheld ? `\n${count(overall.withheld)} refused or filtered` : "";
  return `${interval(overall.low, overall.high)}\nn=${count(overall.n)}${haystacks}${withheld}`;
}

function maybe(value, word) {
  return value === null || value === undefined ? null : word(value);
}

// A share of a text as a depth: '49.8 %'.
function depthWords(share) {
  return `${Number((100 * share).toFixed(2))} %`;
}

function dollars(usd) {
  if (usd === 0) return "$0";
  if (usd < 0.01) return `$${Number(usd.toPrecision(2))}`;
  const digits = usd < 1 ? 3 : 2;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

function seconds(value) {
  if (value < 10) return `${Number(value.toPrecision(2))} s`;
  if (value < 120) return `${Math.round(value)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`;
}

// '2026-11-20T12:00:00Z' as '2026-11-20 12:00:00 UTC'.
function moment(text) {
  const found = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)[\d.]*(?:Z|\+00:00)$/.exec(text);
  return found ? `${found[1]} ${found[2]} UTC` : text;
}

// p-values with as many digits as they are worth.
function probability(p) {
  return p < 0.001 ? "<0.001" : String(Number(p.toFixed(3)));
}

// A word for a POSIX shell.
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

// What is missing in a cell, by kind: '3 (1 timed out, 2 not sent)'.
function missingWords(missing, failures) {
  const kinds = Object.entries(failures ?? {}).map(([kind, number]) => `${number} ${kind}`);
  const known = Object.values(failures ?? {}).reduce((sum, number) => sum + number, 0);
  if (missing > known) kinds.push(`${missing - known} not sent`);
  return kinds.length ? `${missing} (${kinds.join(", ")})` : String(missing);
}

// 'cached 320 of 640 planned', as far as either is known.
function cacheWords(cached, planned) {
  if (cached === null && planned === null) return null;
  const seen = cached === null ? "not known" : `${count(cached)} tokens`;
  return planned === null ? seen : `${seen}; planned ${count(planned)}`;
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
