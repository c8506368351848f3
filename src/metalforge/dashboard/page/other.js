// What another steerer would have done from the record of the time bar on: its decisions, and outcomes that are modelled.
import {at, make, number, systemText, words} from "./dom.js";
import {figure, nothing} from "./figure.js";
import {mark, path, plot, svg} from "./plot.js";

let shown = null;

export function otherChoices(names, own) {
  const choices = at("other-steerer");
  choices.replaceChildren(...names.map((name) => make("option", {value: name}, name)));
  choices.value = names.find((name) => name === "uniform" && name !== own) ?? names.find((name) => name !== own) ?? names[0] ?? "";
}

// Said of what is there already, when somebody goes to another record: it stays until it is worked out again.
export function otherFrom(record) {
  at("other-from").textContent = record === null ? "from the first record on" : `from record ${record} on`;
}

export const otherSaid = (text) => { at("other-said").textContent = text; };

export function clearOther() {
  shown = null;
  otherSaid("");
  at("other-worth").replaceChildren();
  nothing(at("other-plot"));
}

export const otherAgain = () => { if (shown) other(shown); };

export function other(sent) {
  shown = sent;
  const same = sent.visits.filter((v) => v.coordinate === v.was).length, exact = sent.visits.filter((v) => v.exact).length;
  if (!sent.visits.length) otherSaid(`no visit was decided after record ${sent.at}`);
  else otherSaid(`${sent.steerer} from record ${sent.at} on: ${same} of ${sent.visits.length} visits are where they were; the first ${exact} rest on measurements alone. `
    + `Its own steerer, ${sent.own}, worked out in the same way, decides ${sent.own_again} of ${sent.visits.length} as it did. ${sent.note}.`);
  at("other-worth").replaceChildren(...(sent.visits.length ? [worth(sent)] : []));
  draw(sent);
}

function worth(sent) {
  const head = [words.system, words.found, "effective samples at the peak, as it was", `with ${sent.steerer}, modelled`, `error of ${words.found}, measured`, `with ${sent.steerer}, modelled`];
  return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((words) => make("th", {scope: "col"}, words)))),
    make("tbody", {id: "other-rows"}, ...sent.systems.map((v) => make("tr", {}, make("td", {}, systemText(v.system)), ...(v.reason ? [make("td", {colSpan: 5}, v.reason)]
      : [number(v.result), number(v.was, 3), number(v.other, 3), number(v.error, 2), v.other_error === null ? "no chain near the peak" : number(v.other_error, 2)].map((text) => make("td", {className: "number"}, text)))))));
}

function draw(sent) {
  if (!sent.visits.length) return nothing(at("other-plot"));
  const visits = sent.visits, coordinates = visits.flatMap((v) => [v.was, v.coordinate ?? v.was]), margin = 0.05 * (Math.max(...coordinates) - Math.min(...coordinates) || 0.1);
  const title = `where visits were, and where ${sent.steerer} would have had them`;
  const into = figure(at("other-plot"), {name: `other-${sent.steerer}`, title, columns: ["seconds", words.system, `${words.coordinate} as it was`, "by", `${words.coordinate} with ${sent.steerer}`, "by", "rests on measurements alone", "updates", "chi, modelled", "error, modelled", "why"],
    rows: () => visits.map((v) => [v.seconds, systemText(v.system), v.was, v.was_by, v.coordinate, v.by, v.exact ? "yes" : "no", v.updates, v.chi, v.error, v.reason])});
  const key = [{shape: 0, classes: "point f0", words: "as it was"}, {shape: 3, classes: "point f1", words: `${sent.steerer}, by measurements alone`}, {shape: 3, classes: "hollow s1", words: `${sent.steerer}, by modelled outcomes`}];
  plot(into, {height: 230, x: {low: -0.5, high: visits.length - 0.5, label: `visit after record ${sent.at}`}, y: {low: Math.min(...coordinates) - margin, high: Math.max(...coordinates) + margin, label: words.coordinate}, key, describe: at("other-said").textContent}, (inside, sx, sy) => {
    visits.forEach((v, i) => {
      if (v.coordinate !== null) inside.append(svg("path", {class: "line grid", d: path([sx(i), sx(i)], [sy(v.was), sy(v.coordinate)])}));
      inside.append(mark(0, sx(i), sy(v.was), "point f0", `${systemText(v.system)}, as it was: ${number(v.was)}, ${v.was_by}`));
      if (v.coordinate !== null) inside.append(mark(3, sx(i), sy(v.coordinate), v.exact ? "point f1" : "hollow s1", `${systemText(v.system)}, ${v.by}: ${number(v.coordinate)}, ${v.reason}`));
    });
  });
}
