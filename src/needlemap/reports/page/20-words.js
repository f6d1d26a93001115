"use strict";
// Numbers as words, the same everywhere: scores in percent, units always named.

const NONE = "–";

// 0.925 as '92.5'.
function percent(share) {
  return share === null || share === undefined ? NONE : (100 * share).toFixed(1);
}

// A difference of shares with its sign, in points: '-7.3'.
function points(share) {
  const text = (100 * share).toFixed(1);
  return share > 0 && text !== "0.0" ? `+${text}` : text.replace("-0.0", "0.0").replace("-", "\u2212");
}

// The same without decimals, for scales and small cells.
function wholePoints(share) {
  return points(Math.round(100 * share) / 100).replace(".0", "");
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

// '[83.1, 97.0] n=20'; where nobody knows how many answers a mean is of, there is neither.
function precision(low, high, number) {
  return low === null ? counted(number, "mean") : `${interval(low, high)} n=${count(number)}`;
}

// How many trials a score rests on, or means.
function restsOn(run, number) {
  return counted(number, run.counted ? "trial" : "mean");
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

// What is missing in a cell, by kind: '3 (1 timed out, 2 not asked)'.
function missingWords(missing, failures) {
  const kinds = Object.entries(failures ?? {}).map(([kind, number]) => `${number} ${kind}`);
  const known = Object.values(failures ?? {}).reduce((sum, number) => sum + number, 0);
  if (missing > known) kinds.push(`${missing - known} not asked`);
  return kinds.length ? `${missing} (${kinds.join(", ")})` : String(missing);
}

// 'cached 320 of 640 planned', as far as either is known.
function cacheWords(cached, planned) {
  if (cached === null && planned === null) return null;
  const seen = cached === null ? "not said by the server" : `${count(cached)} tokens`;
  return planned === null ? seen : `${seen}; planned ${count(planned)}`;
}
