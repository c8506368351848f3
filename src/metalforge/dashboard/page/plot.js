// Figures as SVG: lines, bands, points with errors and bars on two axes. Text goes in as text, never as markup.
const NS = "http://www.w3.org/2000/svg";
const LEFT = 56, RIGHT = 8, TOP = 8, BOTTOM = 34;

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

// x, y: {low, high, label}; the marks are drawn by the caller's function, which gets both scales.
export function plot(where, {height = 220, x, y, describe}, draw) {
  // One unit is one pixel of the page as it is now, so that words keep their size.
  const WIDTH = Math.min(Math.max(where.clientWidth || 560, 300), 1200), bottom = height - BOTTOM;
  const scale = (axis, from, to) => {
    const span = axis.high - axis.low || 1;
    return (value) => from + ((value - axis.low) / span) * (to - from);
  };
  const sx = scale(x, LEFT, WIDTH - RIGHT), sy = scale(y, bottom, TOP);
  const picture = svg("svg", {viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": describe});
  for (const value of ticks(x.low, x.high, 6)) {
    picture.append(svg("line", {class: "grid", x1: sx(value), x2: sx(value), y1: TOP, y2: bottom}));
    picture.append(svg("text", {x: sx(value), y: bottom + 14, "text-anchor": "middle"}, String(value)));
  }
  for (const value of ticks(y.low, y.high, 4)) {
    picture.append(svg("line", {class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: sy(value), y2: sy(value)}));
    picture.append(svg("text", {x: LEFT - 5, y: sy(value) + 4, "text-anchor": "end"}, String(value)));
  }
  const inside = svg("svg", {x: LEFT, y: TOP, width: WIDTH - RIGHT - LEFT, height: bottom - TOP,
    viewBox: `${LEFT} ${TOP} ${WIDTH - RIGHT - LEFT} ${bottom - TOP}`});
  draw(inside, sx, sy, {top: TOP, bottom});
  picture.append(inside, svg("rect", {class: "frame", x: LEFT, y: TOP, width: WIDTH - RIGHT - LEFT, height: bottom - TOP}));
  picture.append(svg("text", {x: (LEFT + WIDTH) / 2, y: height - 3, "text-anchor": "middle"}, x.label));
  picture.append(svg("text", {x: 11, y: (TOP + bottom) / 2, "text-anchor": "middle",
    transform: `rotate(-90 11 ${(TOP + bottom) / 2})`}, y.label));
  where.replaceChildren(picture);
}

export const path = (xs, ys) => xs.map((x, i) => `${i ? "L" : "M"}${x.toFixed(2)} ${ys[i].toFixed(2)}`).join("");

export function band(xs, low, high) {
  return `${path(xs, high)}${path([...xs].reverse(), [...low].reverse()).replace("M", "L")}Z`;
}

export function vertical(into, sx, beta, {top, bottom}, classes) {
  into.append(svg("line", {class: classes, x1: sx(beta), x2: sx(beta), y1: top, y2: bottom}));
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
