// The graph of stages with what flows through it. Places come from the server: the report has the same picture.
import {at, number, percent} from "./dom.js";
import {figure, nothing} from "./figure.js";
import {svg, widthOf} from "./plot.js";

const HIGH = 74, GAP = 22;
const WAITS = {"": "flows", put: "source waits to hand over", get: "target waits for items"};

export function pipeline(sent, from) {
  const place = at("pipeline-plot"), shown = sent.pipeline;
  at("bottleneck").textContent = shown?.bottleneck ?? "";
  at("rewired").textContent = shown?.rewired.length ? `the graph changed ${shown.rewired.map((s) => `${s.toFixed(1)} s`).join(", ")} after the campaign began` : "";
  if (!shown?.stages.length) return nothing(place, "this journal does not say how the pipeline is wired");
  const title = `ordering ${shown.ordering}: items per second and shares of time over ${number(shown.window_s, 3)} s${shown.paused ? ", paused" : ""}`;
  const into = figure(place, {name: "pipeline", title, columns: ["stage", "on", "runs in", "items", "items/s", "busy", "waits to get", "waits to put", "queue", "bottleneck"],
    rows: () => [...shown.stages.map((s) => [s.name, s.substrate, s.isolation, s.items, s.per_second, s.busy, s.waits_get, s.waits_put, s.queue, s.slowest ? "yes" : ""]),
      ...shown.edges.map((e) => [`${e.source} to ${e.target}`, "", e.channel, "", "", "", "", "", "", WAITS[e.blocked]])]});
  draw(into, shown, `${title}. ${shown.bottleneck}`, from);
}

function draw(where, shown, describe) {
  const columns = 1 + Math.max(...shown.stages.map((s) => s.column)), room = Math.max(widthOf(where), 300);
  // Where columns do not fit side by side they come below each other, and arrows point down.
  const upright = room / columns < 132, rows = Math.max(...shown.stages.map((s) => s.row)) + 1;
  const across = upright ? rows : columns, narrow = room / across < 120, wide = narrow ? room - 40 : Math.min(room / across - 26, 210);
  const order = [...shown.stages].sort((a, b) => a.column - b.column || a.row - b.row);
  const box = new Map(order.map((s, i) => {
    const [x, y] = narrow ? [0, i] : upright ? [s.row, s.column] : [s.column, s.row];
    return [s.name, {x: narrow ? 30 : (room / across) * (x + 0.5) - wide / 2, y: 16 + y * (HIGH + GAP)}];
  }));
  const height = 24 + Math.max(...[...box.values()].map((b) => b.y)) + HIGH, keyed = height + (room < 520 ? 52 : 24);
  const picture = svg("svg", {viewBox: `0 0 ${room} ${keyed}`, role: "img", "aria-label": describe});
  const head = `arrow-${where.parentElement.id}`;
  picture.append(svg("defs", {}, ...["", "put", "get"].map((kind) => svg("marker", {id: `${head}${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse"}, svg("path", {class: `tip ${kind}`, d: "M0 0L8 4L0 8Z"})))));
  for (const edge of shown.edges) {
    const a = box.get(edge.source), b = box.get(edge.target);
    if (!a || !b) continue;
    const line = svg("path", {class: `edge ${edge.blocked}`, d: way(a, b, wide, edge.feedback), "marker-end": `url(#${head}${edge.blocked})`});
    line.append(svg("title", {}, `${edge.source} to ${edge.target}: ${edge.channel}; ${WAITS[edge.blocked]}`));
    picture.append(line);
  }
  for (const stage of shown.stages) picture.append(drawn(stage, box.get(stage.name), wide));
  let x = 8;
  for (const [kind, words] of Object.entries(WAITS)) {
    const down = room < 520 ? Object.keys(WAITS).indexOf(kind) * 14 : 0, left = room < 520 ? 8 : x;
    picture.append(svg("line", {class: `edge ${kind}`, x1: left, x2: left + 26, y1: height + 14 + down, y2: height + 14 + down}), svg("text", {x: left + 31, y: height + 18 + down}, words));
    x += 60 + 6 * words.length;
  }
  where.replaceChildren(picture);
}

// From the side of one box that faces the other to the side of that which faces it; edges that lead back are bent below.
function way(a, b, wide, feedback) {
  const middle = (box) => [box.x + wide / 2, box.y + HIGH / 2], [ax, ay] = middle(a), [bx, by] = middle(b);
  if (a === b) return `M${ax} ${a.y}c-30 -14 30 -14 4 0`;
  if (Math.abs(bx - ax) < wide / 2) {
    const down = by > ay, [from, to] = down ? [a.y + HIGH, b.y - 1] : [a.y, b.y + HIGH + 1];
    return down && !feedback ? `M${ax} ${from}L${bx} ${to}` : `M${a.x} ${ay}C${a.x - 26} ${ay} ${b.x - 26} ${by} ${b.x - 1} ${by}`;
  }
  const right = bx > ax, x1 = right ? a.x + wide : a.x, x2 = right ? b.x - 1 : b.x + wide + 1;
  if (right && !feedback) return `M${x1} ${ay}C${(x1 + x2) / 2} ${ay} ${(x1 + x2) / 2} ${by} ${x2} ${by}`;
  const below = Math.max(a.y, b.y) + HIGH + GAP * 0.7;
  return `M${ax} ${a.y + HIGH}C${ax} ${below} ${bx} ${below} ${bx} ${b.y + HIGH + 1}`;
}

function drawn(stage, {x, y}, wide) {
  const fits = (words, most = Math.floor((wide - 12) / 6)) => (words.length > most ? `${words.slice(0, most - 1)}\u2026` : words);
  const waits = [["get", stage.waits_get], ["put", stage.waits_put]].filter(([, share]) => share >= 0.005).map(([what, share]) => `${what} ${percent(share)}`);
  const lines = [stage.substrate ? `${stage.name} (${stage.substrate})` : stage.name,
    stage.per_second === null ? `${stage.items} items` : `${number(stage.per_second, 3)} items/s`,
    stage.busy === null ? "" : `busy ${percent(stage.busy)}${waits.length ? `; waits: ${waits.join(", ")}` : ""}`,
    stage.queue === null ? "" : `queue ${stage.queue}`];
  const group = svg("g", {}, svg("title", {}, [...lines, stage.isolation].filter(Boolean).join("; ")), svg("rect", {class: stage.slowest ? "stage slowest" : "stage", x, y, width: wide, height: HIGH, rx: 5}));
  if (stage.busy !== null) group.append(svg("rect", {class: "busy", x: x + 1, y: y + HIGH - 6, width: Math.max(0, (wide - 2) * Math.min(stage.busy, 1)), height: 5}));
  lines.forEach((words, i) => group.append(svg("text", {class: i ? "" : "name", x: x + 6, y: y + 15 + 15 * i}, fits(words))));
  return group;
}
