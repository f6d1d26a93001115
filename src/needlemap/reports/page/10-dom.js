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

// A table of a head and rows of cells; the first cell of a row names it.
function table(head, rows, attributes = {}) {
  return el(
    "table",
    attributes,
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) => tableRow(row)),
    ),
  );
}

function tableRow(row) {
  const [name, ...rest] = row.cells ?? row;
  const attributes = row.cells ? { class: row.class } : {};
  return el(
    "tr",
    attributes,
    el("th", { scope: "row" }, name),
    rest.map((cell) => el("td", {}, cell)),
  );
}
