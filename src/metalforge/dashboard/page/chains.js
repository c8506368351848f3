// One chain: histories with crossings, histogram, its complex plane and memory.
import {at, make, number, systemText, words} from "./dom.js";
import {figure, nothing} from "./figure.js";
import {band, horizontal, path, plot, svg, vertical} from "./plot.js";

export function chainChoices(state, chosen) {
  const choices = at("chain"), wanted = state.view.chains.map((c) => `${c.id} ${c.phase}`).join();
  if (choices.dataset.of !== wanted) {
    choices.dataset.of = wanted;
    const sorted = [...state.view.chains].sort((a, b) => a.coordinate - b.coordinate || (a.id < b.id ? -1 : 1));
    choices.replaceChildren(...sorted.map((c) => make("option", {value: c.id}, `${c.id}  ${words.coordinate} = ${c.coordinate.toFixed(4)}  ${c.phase}`)));
  }
  const there = state.view.chains.some((c) => c.id === chosen);
  // Of a page that names none: the chain nearest to the peak, where most happens.
  const {located: peak, system} = state.view.systems[0], off = (c) => (peak === null ? 0 : Math.abs(c.coordinate - peak)) + (String(c.system) === String(system) ? 0 : 1e9);
  const nearest = state.view.chains.reduce((best, c) => (best && off(best) <= off(c) ? best : c), null);
  choices.value = there ? chosen : nearest?.id ?? "";
  return choices.value;
}

// peaks: what located peaks rest on, where the thresholds of phases and the crossings of each chain are.
export function chain(sent, peaks = []) {
  const peak = peaks.find((p) => p.chains.some((c) => c.chain === sent.chain)), own = peak?.chains.find((c) => c.chain === sent.chain);
  at("chain-about").textContent = `${sent.system}, ${sent.updates} ${words.update}s, ${sent.warmup} of them warm-up`
    + (own ? `; ${own.crossings} crossings between the phases` : "");
  history("second-plot", "second", sent, sent.second, sent.labels[1], 1, sent.order === sent.labels[1] ? peak : null, own);
  history("first-plot", "first", sent, sent.first, sent.labels[0], 0);
  histogram(sent);
  plane(sent);
  memory(sent);
}

function history(id, name, sent, [first, low, high], label, colour, peak, own) {
  if (!first.length) return nothing(at(id));
  const settled = first.flatMap((u, i) => (u >= sent.warmup || sent.warmup >= sent.updates ? [i] : []));
  const least = Math.min(...settled.map((i) => low[i])), most = Math.max(...settled.map((i) => high[i]));
  const spread = most - least || 1e-9, y = {low: name === "second" ? Math.min(0, least) : least - 0.35 * spread, high: most + 0.15 * spread, label};
  const into = figure(at(id), {name: `${sent.chain}-${name}`, title: `history of ${label}, by ${words.update}`, columns: [words.update, "smallest", "largest"], rows: () => first.map((u, i) => [u, low[i], high[i]])});
  const key = [{box: true, classes: "shade", words: "warm-up"}, ...(peak ? [{box: true, classes: "band f4", words: "between the phases"}, {classes: "line ink", words: `${own.crossings} crossings`}] : [])];
  plot(into, {height: 190, x: {low: 0, high: Math.max(sent.updates, 1), label: words.update}, y, key, describe: `history of ${label} of ${sent.chain}` + (own ? `, ${own.crossings} crossings` : "")}, (inside, sx, sy, ends) => {
    inside.append(svg("rect", {class: "shade", x: sx(0), y: ends.top, width: sx(sent.warmup) - sx(0), height: ends.bottom - ends.top}));
    const xs = first.map(sx);
    if (low.every((v, i) => v === high[i])) inside.append(svg("path", {class: `line s${colour}`, d: path(xs, low.map(sy))}));
    else inside.append(svg("path", {class: `line f${colour} s${colour}`, d: band(xs, low.map(sy), high.map(sy))}));
    if (!peak) return;
    inside.append(svg("rect", {class: "band f4", x: ends.left, y: sy(peak.high), width: ends.right - ends.left, height: sy(peak.low) - sy(peak.high)}));
    inside.append(svg("path", {class: "line ink crossing", d: own.marks.map((u) => `M${sx(u + sent.warmup).toFixed(1)} ${ends.top}v7`).join("")}));
  });
}

function histogram({chain: name, edges, density, order}) {
  if (!edges.length) return nothing(at("histogram-plot"));
  const into = figure(at("histogram-plot"), {name: `${name}-histogram`, title: `density of ${order}, measured ${words.update}s`, columns: ["from", "to", "density"], rows: () => density.map((d, i) => [edges[i], edges[i + 1], d])});
  plot(into, {height: 190, x: {low: edges[0], high: edges.at(-1), label: order}, y: {low: 0, high: 1.08 * Math.max(...density), label: "density"}, describe: `histogram of ${order} of ${name}`}, (inside, sx, sy) => {
    const xs = edges.flatMap((e) => [e, e]).slice(1, -1).map(sx), ys = density.flatMap((d) => [d, d]).map(sy);
    inside.append(svg("path", {class: "line s0", d: path(xs, ys)}));
  });
}

function plane({chain: name, plane: found}) {
  if (!found?.[0].length) return nothing(at("plane-plot"));
  const [re, im, reach, label] = found, edge = 1.05 * reach || 1, axis = (label) => ({low: -edge, high: edge, label});
  const into = figure(at("plane-plot"), {name: `${name}-plane`, title: `${label} in the complex plane, measured ${words.update}s`, columns: [`Re ${label}`, `Im ${label}`], rows: () => re.map((value, i) => [value, im[i]])});
  plot(into, {square: true, x: axis(`Re ${label}`), y: axis(`Im ${label}`), describe: `${label} of ${name} in the complex plane, ${re.length} ${words.update}s, largest |${label}| ${number(reach, 3)}`}, (inside, sx, sy) => {
    for (const angle of [0, 2 * Math.PI / 3, 4 * Math.PI / 3]) inside.append(svg("line", {class: "line dotted", x1: sx(0), y1: sy(0), x2: sx(edge * Math.cos(angle)), y2: sy(edge * Math.sin(angle))}));
    inside.append(svg("path", {class: "dots s0", d: re.map((value, i) => `M${sx(value).toFixed(1)} ${sy(im[i]).toFixed(1)}h0`).join("")}));
  });
}

function memory({chain: name, memory: found, order}) {
  if (!found) return nothing(at("memory-plot"));
  const [rho, window, tau, error] = found;
  const into = figure(at("memory-plot"), {name: `${name}-autocorrelation`, title: `autocorrelation of ${order}, by distance in ${words.update}s`, columns: ["distance", "rho", "summed"], rows: () => rho.map((value, t) => [t, value, t <= window ? "yes" : "no"])});
  const said = `\u03c4 = ${number(tau, 3)} \u00b1 ${number(error, 2)} ${words.update}s, summed up to ${window}`;
  plot(into, {height: 190, x: {low: 0, high: Math.max(rho.length - 1, 1), label: `distance in ${words.update}s`}, y: {low: Math.min(-0.1, ...rho), high: 1.05, label: "\u03c1"}, key: [{box: true, classes: "band f0", words: said}], describe: `autocorrelation of ${order} of ${name}, ${said}`}, (inside, sx, sy, ends) => {
    inside.append(svg("rect", {class: "band f0", x: sx(0), y: ends.top, width: sx(window) - sx(0), height: ends.bottom - ends.top}));
    horizontal(inside, sy, 0, ends, "grid");
    vertical(inside, sx, window, ends, "line dashed ink");
    inside.append(svg("path", {class: "line s0", d: path(rho.map((_, t) => sx(t)), rho.map(sy))}));
  });
}

