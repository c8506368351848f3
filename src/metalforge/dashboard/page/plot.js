// Pictures as SVG: lines, bands, marks with errors and bars on two axes, and the key below them.
const NS = "http://www.w3.org/2000/svg";
const RIGHT = 8, TOP = 8, BOTTOM = 34, LETTER = 6, LINE = 15;

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function ticks(low, high, wanted) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= wanted);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * span; k++) found.push(Number((k * step).toPrecision(10)));
  return found;
}

// One unit is one pixel of the page as it is now, so that words keep their size.
export const widthOf = (where) => Math.max(where.clientWidth || 560, 280);

// x, y: {low, high, label, ticks: [[value, words]]}; the marks are drawn by the caller's function, which gets both scales.
// key: [{classes, shape, words}], what lines and marks mean. square: one unit is as long upwards as sideways.
export function plot(where, {height = 220, left = 56, x, y, describe, key = [], square = false}, draw) {
  const width = square ? Math.min(widthOf(where), 340) : widthOf(where);
  if (square) height = width - left - RIGHT + TOP + BOTTOM;
  const bottom = height - BOTTOM, right = width - RIGHT;
  const scale = (axis, from, to) => {
    const span = axis.high - axis.low || 1;
    return (value) => from + ((value - axis.low) / span) * (to - from);
  };
  const sx = scale(x, left, right), sy = scale(y, bottom, TOP), named = (axis, wanted) => axis.ticks ?? ticks(axis.low, axis.high, wanted).map((value) => [value, String(value)]);
  const entries = keyLines(key, width - left - RIGHT);
  const total = height + entries.height;
  const picture = svg("svg", {viewBox: `0 0 ${width} ${total}`, role: "img", "aria-label": describe});
  if (square) picture.setAttribute("class", "square");
  for (const [value, words] of named(x, width < 420 ? 4 : 6)) {
    picture.append(svg("line", {class: "grid", x1: sx(value), x2: sx(value), y1: TOP, y2: bottom}));
    picture.append(svg("text", {x: sx(value), y: bottom + 14, "text-anchor": "middle"}, words));
  }
  for (const [value, words] of named(y, 4)) {
    picture.append(svg("line", {class: "grid", x1: left, x2: right, y1: sy(value), y2: sy(value)}));
    picture.append(svg("text", {x: left - 5, y: sy(value) + 4, "text-anchor": "end"}, words));
  }
  const inside = svg("svg", {x: left, y: TOP, width: right - left, height: bottom - TOP, viewBox: `${left} ${TOP} ${right - left} ${bottom - TOP}`});
  draw(inside, sx, sy, {top: TOP, bottom, left, right});
  picture.append(inside, svg("rect", {class: "frame", x: left, y: TOP, width: right - left, height: bottom - TOP}));
  picture.append(svg("text", {x: (left + right) / 2, y: height - 3, "text-anchor": "middle"}, x.label));
  if (y.label) picture.append(svg("text", {x: 11, y: (TOP + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(TOP + bottom) / 2})`}, y.label));
  const below = svg("g", {transform: `translate(${left} ${height})`});
  for (const entry of entries.placed) {
    if (entry.shape !== undefined) below.append(mark(entry.shape, entry.x + 13, entry.y - 4, entry.classes));
    else if (entry.box) below.append(svg("rect", {class: entry.classes, x: entry.x, y: entry.y - 9, width: 24, height: 10, ...(entry.fill ? {fill: entry.fill} : {})}));
    else below.append(svg("line", {class: entry.classes, x1: entry.x, x2: entry.x + 26, y1: entry.y - 4, y2: entry.y - 4}));
    entry.lines.forEach((words, i) => below.append(svg("text", {x: entry.x + 31, y: entry.y + i * LINE}, words)));
  }
  picture.append(below);
  where.replaceChildren(picture);
  return picture;
}

// Where each entry of the key stands: next to the one before, or on a new line; long ones are cut into lines at words.
function keyLines(key, width) {
  const placed = [];
  let x = 0, y = LINE, deep = 1;
  for (const entry of key) {
    const lines = [""], most = Math.max(12, Math.floor((width - 31) / LETTER));
    for (const word of entry.words.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
      lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
    }
    const wide = 45 + LETTER * Math.max(...lines.map((line) => line.length));
    if (x && x + wide - 14 > width) { x = 0; y += deep * LINE; deep = 1; }
    placed.push({...entry, lines, x, y});
    deep = Math.max(deep, lines.length);
    x += wide;
  }
  return {placed, height: placed.length ? y + (deep - 1) * LINE + 6 : 0};
}

export const path = (xs, ys) => xs.map((x, i) => `${i ? "L" : "M"}${x.toFixed(2)} ${ys[i].toFixed(2)}`).join("");

export function band(xs, low, high) {
  return `${path(xs, high)}${path([...xs].reverse(), [...low].reverse()).replace("M", "L")}Z`;
}

export function vertical(into, sx, x, {top, bottom}, classes) {
  into.append(svg("line", {class: classes, x1: sx(x), x2: sx(x), y1: top, y2: bottom}));
}

export function horizontal(into, sy, value, {left, right}, classes) {
  into.append(svg("line", {class: classes, x1: left, x2: right, y1: sy(value), y2: sy(value)}));
}

// Marks differ in shape as well as in colour: circle, square, triangle, diamond, triangle downwards, cross.
const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", "M-3.5 -3.5h7v7h-7Z", "M0 -4.5L4.3 3.5H-4.3Z", "M0 -5L4.4 0L0 5L-4.4 0Z", "M0 4.5L4.3 -3.5H-4.3Z", "M-4 -1.2h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8Z"];

export function mark(shape, x, y, classes, words) {
  const made = svg("path", {class: classes, d: SHAPES[shape % SHAPES.length], transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})`});
  if (words) made.append(svg("title", {}, words));
  return made;
}

export function withError(into, sx, sy, {x, mean, error, shape, colour, words}) {
  into.append(svg("line", {class: `s${colour}`, x1: sx(x), x2: sx(x), y1: sy(mean - error), y2: sy(mean + error)}));
  into.append(mark(shape, sx(x), sy(mean), `point f${colour}`, words));
}

let hatches = 0;
// Slanted lines to fill with: what is only emulated is hatched.
export function hatch(into, colour) {
  const id = `hatch-${hatches++}`;
  into.append(svg("defs", {}, svg("pattern", {id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"},
    svg("rect", {width: 6, height: 6, class: "ground"}), svg("line", {class: `hatched s${colour}`, x1: 0, y1: 0, x2: 0, y2: 6}))));
  return `url(#${id})`;
}

export function spark(values) {
  const picture = svg("svg", {class: "spark", viewBox: "0 0 90 22", "aria-hidden": "true"});
  if (values.length > 1) {
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    const xs = values.map((_, i) => 2 + (86 * i) / (values.length - 1));
    picture.append(svg("path", {class: "line s0", d: path(xs, values.map((v) => 20 - (18 * (v - low)) / span))}));
  }
  return picture;
}
