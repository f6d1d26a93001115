"use strict";
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
