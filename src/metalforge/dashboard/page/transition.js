// The two quantities of a theory (the order parameter and chi) against its coordinate, of one campaign or of several beside each other, and what a peak rests on.
import {at, number, systemText, words} from "./dom.js";
import {figure, nothing} from "./figure.js";
import {band, horizontal, mark, path, plot, svg, vertical, withError} from "./plot.js";

const DASHES = ["", "dashed", "dotdash", "long"];
// Columns of a curve: segment, coordinate, order, its error, chi, its error, B4, its error.
const QUANTITIES = [["order", 2, 3], ["chi", 4, 5]];

// series: [{name, one}]; each has a colour, a shape and a dash of its own.
export function curves(places, {series, published, known, words, prefix, beside}) {
  const systems = series.map(({one}) => one);
  const coordinates = systems.flatMap((v) => [...v.points.map((p) => p.coordinate), ...(v.curve ? v.curve[1] : [])]);
  if (!coordinates.length) return places.forEach((id, i) => nothing(at(id), i ? "" : "nothing has been measured yet"));
  const margin = 0.03 * (Math.max(...coordinates) - Math.min(...coordinates) || 0.1);
  const x = {low: Math.min(...coordinates) - margin, high: Math.max(...coordinates) + margin, label: words.axis};
  QUANTITIES.forEach(([pick, value, error], which) => {
    const label = words.shows[which];
    if (!label) return nothing(at(places[which]));
    const tops = systems.flatMap((v) => [...v.points.filter((p) => p[pick]).map((p) => p[pick].mean + p[pick].error), ...(v.curve ? v.curve[value] : [])]);
    const bottoms = systems.flatMap((v) => v.points.filter((p) => p[pick] && p[pick].mean < 0).map((p) => p[pick].mean - p[pick].error));
    const title = `${label} against ${words.axis}${beside ? ", several campaigns" : ""}`;
    const numbers = () => series.flatMap(({name, one: v}) => [
      ...v.points.filter((p) => p[pick]).map((p) => [name, systemText(v.system), "chain", p.chain, p.coordinate, p[pick].mean, p[pick].error]),
      ...(v.result === null ? [] : [[name, systemText(v.system), v.established ? "located" : "located, not established", "", v.result, "", v.error]]),
      ...(v.curve ? v.curve[1].map((b, j) => [name, systemText(v.system), "curve", v.curve[0][j], b, v.curve[value][j], v.curve[error][j]]) : []),
    ]);
    const peaks = series.filter((s) => s.one.result !== null).map((s) => `${s.name}: located at ${number(s.one.result)} +- ${number(s.one.error, 2)}`);
    const into = figure(at(places[which]), {name: `${prefix}-${pick}`, title, rows: numbers, columns: ["campaign", words.system, "what", `${words.chain} or segment`, words.columns[0], words.columns[which + 1], "error"]});
    const key = words.shows[which + 1] ? [] : keyOf(series, published, known, beside);
    plot(into, {x, y: {low: 1.08 * Math.min(0, ...bottoms), high: 1.08 * Math.max(...tops, 1e-9), label}, key, describe: [title, ...peaks].join("; ")}, (inside, sx, sy, ends) => {
      for (const place of published) vertical(inside, sx, place.at, ends, "line dotted");
      if (known) {
        const there = known.at.flatMap((_, j) => (known[pick][j] === null ? [] : [j]));
        inside.append(svg("path", {class: "line dotted", d: path(there.map((j) => sx(known.at[j])), there.map((j) => sy(known[pick][j])))}));
      }
      series.forEach(({one, name}, i) => {
        const colour = i % 6, peak = series.length === 1 ? 1 : colour, dash = beside ? DASHES[i % 4] : "";
        if (one.result !== null) {
          inside.append(svg("rect", {class: `band f${peak}`, x: sx(one.result - one.error), y: ends.top,
            width: Math.max(sx(one.result + one.error) - sx(one.result - one.error), 1), height: ends.bottom - ends.top}));
          vertical(inside, sx, one.result, ends, `line dashed s${peak}`);
        }
        if (one.curve) {
          const [segment, along] = one.curve, mean = one.curve[value], off = one.curve[error];
          for (const part of new Set(segment)) {
            const own = segment.flatMap((s, j) => (s === part ? [j] : [])), xs = own.map((j) => sx(along[j]));
            inside.append(svg("path", {class: `band f${colour}`, d: band(xs, own.map((j) => sy(mean[j] - off[j])), own.map((j) => sy(mean[j] + off[j])))}));
            inside.append(svg("path", {class: `line ${dash} s${colour}`, d: path(xs, own.map((j) => sy(mean[j])))}));
          }
        }
        for (const p of one.points.filter((point) => point[pick])) {
          withError(inside, sx, sy, {x: p.coordinate, mean: p[pick].mean, error: p[pick].error, shape: i, colour, words: `${beside ? `${name}, ` : ""}${p.chain}: ${number(p[pick].mean)} \u00b1 ${number(p[pick].error, 2)}`});
        }
      });
    });
  });
}

function keyOf(series, published, known, beside) {
  const key = [];
  series.forEach(({name, one}, i) => {
    key.push({shape: i, classes: `point f${i % 6}`, words: beside ? `${name}, ${systemText(one.system)}` : systemText(one.system)});
    if (beside) key.push({classes: `line ${DASHES[i % 4]} s${i % 6}`, words: "all together"});
    if (one.result !== null) key.push({classes: `line dashed s${series.length === 1 ? 1 : i % 6}`, words: `located${one.established ? "" : ", not established"}`});
  });
  for (const place of published) key.push({classes: "line dotted", words: `published, ${place.text} (${place.short})`});
  if (known) key.push({classes: "line dotted", words: known.text});
  return key;
}

export function transition(sent) {
  at("transition-at").textContent = `as of record ${sent.at}`;
  curves(["order-plot", "chi-plot"], {series: sent.figure.systems.map((one) => ({name: sent.name, one})), published: sent.figure.published, known: sent.figure.known, words: sent.figure.words, prefix: "transition", beside: false});
  support(sent.support);
}

function support(peaks) {
  if (!peaks.length) {
    nothing(at("overlap-plot"), "no peak is located yet, and so nothing rests on the chains");
    return nothing(at("samples-plot"));
  }
  const coordinates = peaks.flatMap((p) => p.chains.map((c) => c.coordinate)), margin = 0.03 * (Math.max(...coordinates) - Math.min(...coordinates) || 0.1);
  const x = {low: Math.min(...coordinates) - margin, high: Math.max(...coordinates) + margin, label: words.axis};
  const peakOf = (inside, sx, ends, peak) => {
    inside.append(svg("rect", {class: "shade", x: sx(peak.result - peak.width), y: ends.top, width: sx(peak.result + peak.width) - sx(peak.result - peak.width), height: ends.bottom - ends.top}));
    vertical(inside, sx, peak.result, ends, "line dotted");
  };
  const smallest = Math.min(...peaks.flatMap((p) => p.overlaps.map((o) => o[2])));
  const overlaps = figure(at("overlap-plot"), {name: "overlap", title: "overlap in E of neighbouring chains, 0 to 1", columns: [words.system, `lower ${words.coordinate}`, `upper ${words.coordinate}`, "overlap", "needed at the peak"],
    rows: () => peaks.flatMap((p) => p.overlaps.map(([low, high, value]) => [systemText(p.system), low, high, value, p.needed]))});
  const key = [...peaks.map((p, i) => ({classes: `line thick s${i % 6}`, words: systemText(p.system)})), {classes: "line dashed ink", words: `needed at the peak: ${peaks[0].needed}`}, {classes: "shade", box: true, words: "width of the peak"}];
  plot(overlaps, {x, y: {low: 0, high: 1, label: "overlap"}, key, describe: `overlap of neighbouring chains, smallest ${number(smallest, 3)}`}, (inside, sx, sy, ends) => {
    peaks.forEach((peak, i) => {
      peakOf(inside, sx, ends, peak);
      for (const [low, high, value] of peak.overlaps) inside.append(svg("line", {class: `line thick s${i % 6}`, x1: sx(low), x2: sx(high), y1: sy(value), y2: sy(value)}, svg("title", {}, `${number(low)} to ${number(high)}: ${number(value, 3)}`)));
    });
    horizontal(inside, sy, peaks[0].needed, ends, "line dashed ink");
  });
  const most = Math.max(...peaks.flatMap((p) => p.chains.flatMap((c) => [c.own, c.carried])));
  const samples = figure(at("samples-plot"), {name: "effective-samples", title: "effective samples of each chain, updates / 2 \u03c4", columns: [words.system, words.chain, words.coordinate, "own", "carried to the peak", "crossings"],
    rows: () => peaks.flatMap((p) => p.chains.map((c) => [systemText(p.system), c.chain, c.coordinate, c.own, c.carried, c.crossings]))});
  plot(samples, {x, y: {low: 0, high: 1.08 * most, label: "effective samples"}, key: [{shape: 0, classes: "hollow s0", words: "the chain's own"}, {shape: 3, classes: "point f1", words: "carried to the peak"}],
    describe: `effective samples against ${words.coordinate}, ${peaks.map((p) => `${systemText(p.system)}: ${number(p.chains.reduce((sum, c) => sum + c.carried, 0), 4)} at the peak`).join("; ")}`}, (inside, sx, sy, ends) => {
    for (const peak of peaks) {
      peakOf(inside, sx, ends, peak);
      for (const c of peak.chains) {
        inside.append(mark(0, sx(c.coordinate), sy(c.own), "hollow s0", `${c.chain}: ${number(c.own, 4)} of its own`));
        inside.append(mark(3, sx(c.coordinate), sy(c.carried), "point f1", `${c.chain}: ${number(c.carried, 4)} at the peak`));
      }
    }
  });
}
