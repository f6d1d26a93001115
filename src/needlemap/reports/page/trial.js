"use strict";
// One trial: what was asked, what was answered, why it scored so, and where the needle stood.

function trialNodes(trials, row, run) {
  const marks = [...textsAt(trials, "keywords", row), textAt(trials, "reference", row) ?? ""];
  return [
    el("h3", {}, trialTitle(trials, row), outcomeNode(trials, row)),
    ...failureNodes(trials, row),
    block("Question", proseOf(textAt(trials, "question", row) || null)),
    block("Reference", [
      proseOf(textAt(trials, "reference", row) || null),
      wordList(textsAt(trials, "keywords", row)),
    ]),
    thinkingBlock(trials, row),
    block(
      "Answer",
      proseOf(textAt(trials, "answer", row), { marks, cut: valueAt(trials, "cut", row) ?? 0 }) ??
        none("none recorded"),
    ),
    block("Why", whyNodes(textAt(trials, "why", row))),
    ...needlesAt(trials, row).map((needle, place, all) =>
      needleBlock(needle, all.length > 1 ? ` ${place + 1}` : ""),
    ),
    block("Measured", factList(trialFacts(trials, row), { class: "facts columns" })),
    replayBlock(trials, row, run),
  ];
}

// A part of a trial under its name; left out where nothing is known.
function block(name, content) {
  const known = [content].flat().filter(Boolean);
  return known.length ? el("section", { class: "block" }, el("h4", {}, name), known) : null;
}

function proseOf(text, options) {
  return text === null ? null : prose(text, options);
}

function none(words) {
  return el("p", { class: "soft" }, words);
}

function trialTitle(trials, row) {
  return `Repeat ${valueAt(trials, "repeat", row)}: ${textAt(trials, "says", row)}`;
}

// How it ended where that is more than a score: refused, cut off.
function outcomeNode(trials, row) {
  const outcome = textAt(trials, "outcome", row);
  if (outcome === null || outcome === "scored" || outcome === textAt(trials, "failure", row)) return null;
  return el("span", { class: "outcome" }, visible(outcome));
}

// What a reasoning model wrote before its answer, folded.
function thinkingBlock(trials, row) {
  const text = textAt(trials, "thinking", row);
  if (!text) return null;
  const size = textAt(trials, "thought", row) ?? counted(text.length, "character");
  return el(
    "details",
    { class: "block", "data-keep": "thinking" },
    el("summary", {}, el("h4", {}, `Thinking, ${size}`)),
    prose(text),
  );
}

function failureNodes(trials, row) {
  const failure = textAt(trials, "failure", row);
  if (failure === null) return [];
  return [
    el("div", { class: "failure" }, el("b", {}, visible(failure)), proseOf(textAt(trials, "error", row))),
  ];
}

function wordList(words) {
  if (!words.length) return null;
  return el(
    "p",
    { class: "words" },
    el("span", { class: "soft" }, "key words "),
    words.map((word) => el("span", { class: "word", dir: "auto" }, visible(word))),
  );
}

function needleBlock(needle, number) {
  const where = `Needle${number} at ${needle.where}`;
  if (!needle.needle && !needle.before && !needle.after)
    return block(where, none("The text around it is not in this file."));
  return block(
    where,
    el(
      "div",
      { class: "prose surroundings", dir: "auto", tabindex: "0", role: "group", "aria-label": where },
      visible(needle.before),
      el("mark", { class: "needle" }, visible(needle.needle)),
      visible(needle.after),
    ),
  );
}

function trialFacts(trials, row) {
  const { facts, strings } = trials.columns;
  return facts.map(([word, places]) => [word, strings[places[row]]]).filter(([, text]) => text !== undefined);
}

function replayBlock(trials, row, run) {
  if (run.imported) return null;
  const cell = valueAt(trials, "cell", row);
  const command = replayCommand(run, cell, valueAt(trials, "repeat", row));
  const text = el("code", {}, plain(command));
  const copy = button("Copy", () => copyText(command, text, copy), { class: "quiet" });
  return block("Replay this prompt", el("p", { class: "replay" }, text, copy));
}

function replayCommand(run, cell, repeat) {
  const [length] = run.lengths[run.cells.length[cell]];
  const [, , depth] = run.depths.find(([share]) => share === run.cells.depth[cell]);
  return `${run.replay} --length ${length} --depth ${depth} --repeat ${repeat}`;
}

// Copies, or where the browser forbids it selects the text for the reader to copy.
async function copyText(text, element, copy) {
  try {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(element);
    copy.textContent = "Selected";
  }
  announce(copy.textContent);
}

// What decided a score, in words: a scorer's `why` is a mapping whose names are the scorer's own.

const WHY_WORDS = {
  found: "found",
  missing: "not found",
  distance: "edit distance",
  answer_chars: "answer's characters",
  reference_chars: "reference's characters",
  said: "the judge said",
  model: "the judge",
  attempts: "asked",
  greedy_match: "would have said just this",
  tokens: "tokens compared",
  usage: "the judge's usage",
};

function whyNodes(text) {
  const why = parsed(text);
  if (why === null || Object.keys(why).length === 0) return null;
  return factList(
    Object.entries(why).map(([name, value]) => [
      WHY_WORDS[name] ?? plain(name.replaceAll("_", " ")),
      whyValue(value),
    ]),
  );
}

function parsed(text) {
  try {
    const value = JSON.parse(text ?? "null");
    return value !== null && typeof value === "object" ? value : maybe(value, (said) => ({ said }));
  } catch {
    return { said: text };
  }
}

function whyValue(value) {
  if (Array.isArray(value)) return value.length ? el("span", { class: "words" }, value.map(whyWord)) : "none";
  if (value !== null && typeof value === "object") {
    return (
      Object.entries(value)
        .map(([name, inner]) => `${name.replaceAll("_", " ")} ${shortly(inner)}`)
        .join(", ") || "none"
    );
  }
  if (typeof value === "string") return prose(value);
  return typeof value === "boolean" ? (value ? "yes" : "no") : shortly(value);
}

function whyWord(value) {
  return el("span", { class: "word", dir: "auto" }, visible(shortly(value)));
}

function shortly(value) {
  if (value === null) return "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
