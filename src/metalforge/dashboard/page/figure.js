// A figure's frame: title, the picture, buttons that save it as SVG and its numbers as CSV, and the numbers as a table.
// The frame stays while what is in it changes, so that focus and an open table do.
import {make} from "./dom.js";
import {svg} from "./plot.js";

const MOST_ROWS = 200;
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
const frames = new WeakMap();

// about: {name, title, columns, rows}; `rows` is a function, since numbers are mostly not looked at.
export function figure(where, about) {
  if (!frames.has(where)) frames.set(where, frameIn(where));
  const frame = frames.get(where);
  frame.about = about;
  frame.title.textContent = about.title;
  for (const [button, what] of [[frame.svg, "picture"], [frame.csv, "numbers"]]) button.setAttribute("aria-label", `save the ${what} of: ${about.title}`);
  if (frame.numbers.open) fill(frame);
  return frame.picture;
}

export function nothing(where, text) {
  frames.delete(where);
  where.replaceChildren(...(text ? [make("p", {className: "soft"}, text)] : []));
}

function frameIn(where) {
  const frame = {title: make("h3"), picture: make("div", {className: "plot"}), table: make("div", {className: "scroll tall", tabIndex: 0, role: "region"})};
  frame.svg = make("button", {type: "button", className: "save", onclick: () => saveSvg(frame)}, "SVG");
  frame.csv = make("button", {type: "button", className: "save", onclick: () => save(frame, "csv", "text/csv", csv(frame.about.columns, frame.about.rows()))}, "CSV");
  frame.numbers = make("details", {className: "numbers", ontoggle: () => fill(frame)}, make("summary", {}, "numbers"), frame.table);
  where.replaceChildren(make("div", {className: "caption"}, frame.title, frame.svg, frame.csv), frame.picture, frame.numbers);
  return frame;
}

function fill(frame) {
  if (!frame.numbers.open) return;
  const {title, columns, rows} = frame.about, all = rows();
  frame.table.setAttribute("aria-label", `numbers of: ${title}`);
  frame.table.replaceChildren(make("table", {},
    make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", {scope: "col"}, name)))),
    make("tbody", {}, ...all.slice(-MOST_ROWS).map((row) => make("tr", {}, ...row.map((cell) => make("td", {className: "number"}, text(cell))))))),
    ...(all.length > MOST_ROWS ? [make("p", {className: "soft"}, `the last ${MOST_ROWS} of ${all.length}; all are in the CSV`)] : []));
}

const text = (cell) => (cell === null || cell === undefined ? "" : typeof cell === "number" ? String(Number(cell.toPrecision(7))) : String(cell));

export function csv(columns, rows) {
  const field = (cell) => {
    if (cell === null || cell === undefined) return "";
    if (typeof cell === "number") return String(cell);
    const safe = /^[=+@\t-]/.test(cell) ? `'${cell}` : String(cell);  // a spreadsheet would take it for a formula
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
}

// The picture as a file that stands alone: styles are written at each element, and the title above it.
export function standAlone(picture, title) {
  const copy = picture.cloneNode(true), [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  const whole = [copy, ...copy.querySelectorAll("*")];
  [picture, ...picture.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(element);
    if (!["title", "defs", "pattern"].includes(element.localName)) {
      for (const name of KEPT) whole[i].setAttribute(name, style.getPropertyValue(name));
    }
    whole[i].removeAttribute("class");
  });
  const page = getComputedStyle(document.body), above = 26;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height + above);
  copy.setAttribute("viewBox", `0 ${-above} ${width} ${height + above}`);
  copy.prepend(svg("title", {}, title), svg("rect", {x: 0, y: -above, width, height: height + above, fill: page.backgroundColor}),
    svg("text", {x: 8, y: -9, fill: page.color, "font-size": "13px", "font-family": page.fontFamily}, title));
  return new XMLSerializer().serializeToString(copy);
}

function saveSvg(frame) {
  const picture = frame.picture.querySelector("svg");
  if (picture) save(frame, "svg", "image/svg+xml", standAlone(picture, frame.about.title));
}

function save(frame, ending, kind, data) {
  const campaign = document.title.replace(/: metalforge$/, ""), name = `${campaign}-${frame.about.name}`.replace(/[^\w.-]+/g, "-");
  const link = make("a", {href: URL.createObjectURL(new Blob([data], {type: kind})), download: `${name}.${ending}`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
