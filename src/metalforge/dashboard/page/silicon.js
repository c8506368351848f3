// When every core, card, board and node worked, and its joules over time: measured and modelled are lines of their own.
import {at, number, percent} from "./dom.js";
import {figure, nothing} from "./figure.js";
import {hatch, mark, path, plot, svg, vertical} from "./plot.js";

export function silicon(sent) {
  const shown = sent.silicon, x = {low: shown.low, high: Math.max(shown.high, shown.low + 1e-3), label: "seconds since the campaign began"};
  at("silicon-note").textContent = shown.note;
  const used = (lane) => (lane.at_once === null ? "" : lane.at_once > 1.05 ? `${number(lane.at_once, 2)} at once` : percent(lane.at_once));
  const worked = shown.lanes.filter((lane) => lane.began.length), names = shown.lanes.map((lane) => [lane.name, used(lane)].filter(Boolean).join("  "));
  if (!worked.length) nothing(at("silicon-plot"), shown.lanes.length ? "" : "no silicon is named in this journal");
  else {
    const into = figure(at("silicon-plot"), {name: "silicon", title: "when silicon worked: blocks by substrate, and the share of its time", columns: ["substrate", "device", "does", "emulated", "began [s]", "ended [s]", "busy share", "chain"],
      rows: () => shown.lanes.flatMap((l) => l.began.map((began, i) => [l.name, l.device, l.role, l.emulated ? "yes" : "no", began, l.ended[i], l.busy[i], l.chain[i] || "several"]))});
    const left = Math.min(150, 20 + 6 * Math.max(...names.map((name) => name.length)));
    const picture = plot(into, {height: 46 + 24 * shown.lanes.length, left, x, y: {low: shown.lanes.length - 0.5, high: -0.5, ticks: names.map((name, i) => [i, name])},
      describe: `when silicon worked; ${names.join("; ")}`, key: keyOf(shown)}, (inside, sx, sy, ends) => {
      const tall = 0.7 * Math.abs(sy(1) - sy(0));
      shown.lanes.forEach((lane, row) => {
        const fill = lane.emulated ? hatch(inside, row % 6) : null;
        lane.began.forEach((began, i) => {
          const from = sx(Math.max(began, shown.low)), to = sx(Math.min(lane.ended[i], shown.high));
          if (to < ends.left) return;
          // A stretch with pauses in it is as much lower as it worked less.
          const high = tall * Math.max(Math.min(lane.busy[i], 1), 0.15);
          inside.append(svg("rect", {class: lane.emulated ? `bar s${row % 6}` : `bar f${row % 6}`, ...(fill ? {fill} : {}), x: from.toFixed(2), y: (sy(row) + tall / 2 - high).toFixed(2), width: Math.max(to - from - 0.4, 0.6).toFixed(2), height: high.toFixed(2)},
            svg("title", {}, `${lane.name}: ${lane.chain[i] || "several chains"}, ${number(began, 6)} to ${number(lane.ended[i], 6)} s, busy ${percent(lane.busy[i])}`)));
        });
      });
      for (const moment of shown.rewired) vertical(inside, sx, moment, ends, "line dotted");
    });
    picture.classList.add("gantt");
  }
  energy(shown, x);
}

function keyOf(shown) {
  const key = [];
  if (shown.lanes.some((lane) => lane.emulated)) key.push({box: true, classes: "emulated", words: "outlined and hatched: emulated"});
  if (shown.rewired.length) key.push({classes: "line dotted", words: "the graph changed"});
  return key;
}

function energy({energy: lines, rewired}, x) {
  if (!lines.length) return nothing(at("energy-plot"), "no joules are in this journal yet");
  const title = "energy so far [J], by substrate and source", most = Math.max(...lines.flatMap((line) => line.joules), 1e-9);
  const words = (line) => `${line.substrate}, ${line.source}`;
  const into = figure(at("energy-plot"), {name: "energy", title, columns: ["substrate", "source", "seconds", "joules"], rows: () => lines.flatMap((l) => l.seconds.map((s, i) => [l.substrate, l.source, s, l.joules[i]]))});
  plot(into, {height: 190, x, y: {low: 0, high: 1.08 * most, label: "J"}, key: lines.map((l, i) => ({classes: `line s${i % 6} ${l.source === "measured" ? "" : "dashed"}`, words: words(l)})),
    describe: `${title}; ${lines.map((l) => `${words(l)}: ${number(l.joules.at(-1), 4)} J`).join("; ")}`}, (inside, sx, sy, ends) => {
    lines.forEach((line, i) => {
      inside.append(svg("path", {class: `line s${i % 6} ${line.source === "measured" ? "" : "dashed"}`, d: path(line.seconds.map(sx), line.joules.map(sy))}));
      inside.append(mark(i, sx(line.seconds.at(-1)), sy(line.joules.at(-1)), `point f${i % 6}`, `${words(line)}: ${number(line.joules.at(-1), 4)} J`));
    });
    for (const moment of rewired) vertical(inside, sx, moment, ends, "line dotted");
  });
}
