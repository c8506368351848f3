// The panels: each draws what the server sent, and knows nothing of time or of the network.
import {band, path, plot, spark, svg, vertical} from "./plot.js";

export const at = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-")) element.setAttribute(key, value); else element[key] = value;
  }
  element.append(...children);
  return element;
}

const number = (value, digits = 5) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(digits))));
const lattice = ([x, y, z, t]) => (x === y && y === z ? `${x}\u00b3\u00d7${t}` : `${x}\u00d7${y}\u00d7${z}\u00d7${t}`);
const WORDS = {abs_loop: "|L|", re_loop: "Re L"};

export function campaigns(rows, chosen, choose) {
  at("campaign-rows").replaceChildren(...rows.map((row) => {
    const open = make("button", {type: "button", className: "link", onclick: () => choose(row.campaign)}, row.name || row.directory);
    const line = make("tr", {title: row.directory},
      make("td", {}, open),
      make("td", {}, row.problem ? `cannot be read on: ${row.problem}` : row.ending ? `${row.status}: ${row.ending}` : row.status),
      make("td", {className: "number"}, row.beta_c, row.beta_c && row.beta_c !== "-" && !row.established ? " (not established)" : ""),
      make("td", {}, spark(row.spark)),
      make("td", {className: "number"}, row.left),
      make("td", {}, row.silicon.join("; ")));
    if (row.campaign === chosen) line.setAttribute("aria-current", "true");
    return line;
  }));
}

export function headline(state) {
  const {view} = state;
  at("headline").replaceChildren(...state.volumes.flatMap((volume) => [
    make("p", {}, `${volume.lattice}: `, make("span", {className: "big"}, volume.beta_c === "-" ? "\u03b2c not located" : `\u03b2c = ${volume.beta_c}`),
      make("span", {className: "soft"}, volume.beta_c === "-" ? ` ${volume.reason}` : volume.established ? " established" : " not established")),
    make("ul", {className: "evidence"}, ...volume.evidence.map((item) => make("li", {className: item.holds ? "" : "lacks"},
      `${item.holds ? "\u2713" : "\u2717"} ${item.name}: ${item.found}`, make("span", {className: "soft"}, item.needed ? ` (${item.needed})` : "")))),
  ]), make("p", {id: "infinite"}));
  at("budgets").replaceChildren(
    ...view.budgets.map((budget) => make("p", {}, `${budget.name}: `, make("progress", {max: 1, value: budget.share, "aria-label": budget.name}),
      ` ${number(budget.used, 4) || "-"} of ${number(budget.limit, 4)} ${budget.unit}`)),
    make("p", {className: "soft"}, `${view.trajectories} updates, ${view.per_second.toFixed(0)} a second, ${state.elapsed} so far`
      + (state.left ? `, about ${state.left} left (${view.ends_by})` : "") + `; ordering ${view.ordering}, steered by ${view.steerer}`),
    ...(view.heads ? [make("p", {className: "soft"}, view.heads)] : []));
  at("energy").replaceChildren(...state.energy.filter((entry) => entry.energy !== null).map((entry) =>
    make("p", {className: "soft"}, `energy of ${entry.substrate ?? "host"}: ${number(entry.energy.value, 4)} J, ${entry.source}`)));
}

export function infinite(sent) {
  const there = at("infinite"), found = sent?.summary.infinite_volume;
  if (there === null) return;
  if (!found) return there.replaceChildren();
  const text = found.value === null ? `infinite volume: ${found.reason}` : `infinite volume: \u03b2c = ${sent.quoted}`;
  there.replaceChildren(text + (found.value === null ? "" : found.established ? ", established" : ", not established"));
}

export function transition(sent) {
  const volumes = sent.figure.volumes, order = WORDS[sent.figure.observable] ?? sent.figure.observable;
  at("transition-at").textContent = `as of record ${sent.at}`;
  const betas = volumes.flatMap((v) => [...v.points.map((p) => p.beta), ...(v.curve ? v.curve[1] : [])]);
  const legend = [];
  if (!betas.length) {
    at("order-plot").replaceChildren(make("p", {className: "soft"}, "nothing has been measured yet"));
    at("chi-plot").replaceChildren();
    return at("transition-legend").replaceChildren();
  }
  const margin = 0.03 * (Math.max(...betas) - Math.min(...betas) || 0.1);
  const x = {low: Math.min(...betas) - margin, high: Math.max(...betas) + margin, label: "\u03b2 = 6/g\u00b2"};
  // Columns of a curve: segment, beta, order, its error, chi, its error, B4, its error.
  for (const [id, pick, value, error, label] of [["order-plot", "order", 2, 3, `\u27e8${order}\u27e9`], ["chi-plot", "chi", 4, 5, "\u03c7"]]) {
    const tops = volumes.flatMap((v) => [...v.points.filter((p) => p[pick]).map((p) => p[pick].mean + p[pick].error), ...(v.curve ? v.curve[value] : [])]);
    const y = {low: 0, high: 1.08 * Math.max(...tops, 1e-9), label};
    plot(at(id), {x, y, describe: `${label} against beta`}, (into, sx, sy, ends) => {
      for (const known of sent.figure.published) vertical(into, sx, parseFloat(known[1]), ends, "line dotted");
      volumes.forEach((volume, i) => {
        const colour = i % 6, peak = volumes.length === 1 ? 1 : colour;
        if (volume.beta_c !== null) {
          into.append(svg("rect", {class: `band f${peak}`, x: sx(volume.beta_c - volume.error), y: ends.top,
            width: Math.max(sx(volume.beta_c + volume.error) - sx(volume.beta_c - volume.error), 1), height: ends.bottom - ends.top}));
          vertical(into, sx, volume.beta_c, ends, `line dashed s${peak}`);
        }
        if (volume.curve) {
          const [segment, beta] = volume.curve, mean = volume.curve[value], off = volume.curve[error];
          for (const part of new Set(segment)) {
            const own = segment.flatMap((s, j) => (s === part ? [j] : [])), xs = own.map((j) => sx(beta[j]));
            into.append(svg("path", {class: `band f${colour}`, d: band(xs, own.map((j) => sy(mean[j] - off[j])), own.map((j) => sy(mean[j] + off[j])))}));
            into.append(svg("path", {class: `line s${colour}`, d: path(xs, own.map((j) => sy(mean[j])))}));
          }
        }
        for (const point of volume.points.filter((p) => p[pick])) {
          const {mean, error: e} = point[pick];
          into.append(svg("line", {class: `s${colour}`, x1: sx(point.beta), x2: sx(point.beta), y1: sy(mean - e), y2: sy(mean + e)}));
          into.append(svg("circle", {class: `point f${colour}`, cx: sx(point.beta), cy: sy(mean), r: 3.5}, svg("title", {}, `${point.chain}: ${number(mean)} \u00b1 ${number(e, 2)}`)));
        }
      });
    });
  }
  const key = (classes, text) => legend.push(make("li", {}, svg("svg", {viewBox: "0 0 26 10", "aria-hidden": "true"}, svg("line", {class: classes, x1: 0, x2: 26, y1: 5, y2: 5})), text));
  volumes.forEach((v, i) => {
    key(`line s${i % 6}`, lattice(v.dims));
    if (v.beta_c !== null) key(`line dashed s${volumes.length === 1 ? 1 : i % 6}`, `peak${v.established ? "" : ", not established"}`);
  });
  for (const known of sent.figure.published) key("line dotted", `published, infinite volume, Nt = ${known[0]}: ${known[1]} (${known[2]})`);
  at("transition-legend").replaceChildren(...legend);
}

export function chainChoices(state, chosen) {
  const choices = at("chain"), wanted = state.view.chains.map((c) => `${c.id} ${c.phase}`).join();
  if (choices.dataset.of !== wanted) {
    choices.dataset.of = wanted;
    const sorted = [...state.view.chains].sort((a, b) => a.beta - b.beta || (a.id < b.id ? -1 : 1));
    choices.replaceChildren(...sorted.map((c) => make("option", {value: c.id}, `${c.id}  \u03b2 = ${c.beta.toFixed(4)}  ${c.phase}`)));
  }
  const there = state.view.chains.some((c) => c.id === chosen);
  // Of a page that names none: the chain nearest to the peak, where most happens.
  const {beta_c: peak, dims} = state.view.volumes[0], off = (c) => (peak === null ? 0 : Math.abs(c.beta - peak)) + (lattice(c.dims) === lattice(dims) ? 0 : 10);
  const nearest = state.view.chains.reduce((best, c) => (best && off(best) <= off(c) ? best : c), null);
  choices.value = there ? chosen : nearest?.id ?? "";
  return choices.value;
}

export function chain(sent) {
  at("chain-about").textContent = `${sent.lattice}, ${sent.updates} updates, ${sent.warmup} of them warm-up`;
  for (const [id, [first, low, high], label, colour] of [["loop-plot", sent.loop, "|L|", 1], ["plaquette-plot", sent.plaquette, "plaquette", 0]]) {
    if (!first.length) { at(id).replaceChildren(); continue; }
    const settled = first.flatMap((u, i) => (u >= sent.warmup || sent.warmup >= sent.updates ? [i] : []));
    const least = Math.min(...settled.map((i) => low[i])), most = Math.max(...settled.map((i) => high[i]));
    const spread = most - least || 1e-9, y = {low: id === "loop-plot" ? 0 : least - 0.35 * spread, high: most + 0.15 * spread, label};
    plot(at(id), {height: 150, x: {low: 0, high: Math.max(sent.updates, 1), label: "update"}, y, describe: `history of ${label}`}, (into, sx, sy, ends) => {
      into.append(svg("rect", {class: "shade", x: sx(0), y: ends.top, width: sx(sent.warmup) - sx(0), height: ends.bottom - ends.top}));
      const xs = first.map(sx);
      if (low.every((v, i) => v === high[i])) into.append(svg("path", {class: `line s${colour}`, d: path(xs, low.map(sy))}));
      else into.append(svg("path", {class: `line f${colour} s${colour}`, d: band(xs, low.map(sy), high.map(sy))}));
    });
  }
  if (!sent.edges.length) return at("histogram-plot").replaceChildren();
  const {edges, density} = sent;
  plot(at("histogram-plot"), {height: 150, x: {low: edges[0], high: edges.at(-1), label: "order parameter, measured updates"},
    y: {low: 0, high: 1.08 * Math.max(...density), label: "density"}, describe: "histogram of the order parameter"}, (into, sx, sy) => {
    const xs = edges.flatMap((e) => [e, e]).slice(1, -1).map(sx), ys = density.flatMap((d) => [d, d]).map(sy);
    into.append(svg("path", {class: "line s0", d: path(xs, ys)}));
  });
}

const FILTERS = {what: (d) => d.what, by: (d) => d.by, head: (d) => d.head || "none", trusted: (d) => ({true: "yes", false: "no"})[d.trusted] ?? "no head asked"};

export function decisions(rows, current, go) {
  for (const [name, value] of Object.entries(FILTERS)) {
    const select = at(`filter-${name}`), options = ["all", ...new Set(rows.map(value))].slice(0, 60), kept = select.value;
    if (select.dataset.of !== options.join("\n")) {
      select.dataset.of = options.join("\n");
      select.replaceChildren(...options.map((text) => make("option", {value: text}, text)));
      select.value = options.includes(kept) ? kept : "all";
    }
  }
  const shown = rows.filter((d) => Object.entries(FILTERS).every(([name, value]) => ["all", value(d)].includes(at(`filter-${name}`).value)));
  at("decision-rows").replaceChildren(...shown.slice(-300).reverse().map((d) => {
    const open = make("button", {type: "button", className: "link", onclick: () => go(d.at), "aria-label": `state at record ${d.at}`}, String(d.at));
    const line = make("tr", {}, make("td", {className: "number"}, open), ...[`${d.seconds.toFixed(1)} s`, d.what,
      d.trusted === false && d.head ? `${d.by} (${d.head} not trusted)` : d.by, d.chain, number(d.beta), number(d.value), number(d.baseline)].map((text) => make("td", {}, text)), make("td", {className: "why"}, d.reason));
    if (d.at === current) line.setAttribute("aria-current", "true");
    return line;
  }));
  at("decision-count").textContent = `${shown.length} of ${rows.length} decisions` + (shown.length > 300 ? ", the last 300 are shown" : "");
}
