// Several campaigns beside each other: their curves in one figure, and what each cost in a table.
import {at, make} from "./dom.js";
import {nothing} from "./figure.js";
import {curves} from "./transition.js";

const shown = ({figure: {words}}) => `${words.shows.filter(Boolean).join(" and ")} against ${words.coordinate}`;

// found: [{sent, problem, row}], in the order of the table.
export function compare(found) {
  const panel = at("compare");
  panel.hidden = found.length < 2;
  if (panel.hidden) return;
  const there = found.filter((one) => one.sent).map((one) => one.sent);
  const published = new Map(there.flatMap((sent) => sent.figure.published).map((known) => [known.text, known]));
  const other = there.find((sent) => shown(sent) !== shown(there[0]));
  if (other) {
    nothing(at("compare-order-plot"), `no figure in common: ${[there[0], other].map((sent) => `${sent.name} shows ${shown(sent)}`).join(", ")}`);
    nothing(at("compare-chi-plot"));
  } else if (there.length) {
    // Campaigns may share a name: the directory tells them apart.
    const names = found.filter((one) => one.sent).map(({sent, row}) => (there.filter((other) => other.name === sent.name).length > 1 ? row.directory : sent.name));
    curves(["compare-order-plot", "compare-chi-plot"], {series: there.flatMap((sent, i) => sent.figure.systems.map((one) => ({name: names[i], one}))), published: [...published.values()], known: null,
      words: there[0].figure.words, prefix: "compare", beside: true});
  } else for (const id of ["compare-order-plot", "compare-chi-plot"]) nothing(at(id));
  at("compare-table").replaceChildren(
    make("thead", {}, make("tr", {}, ...(there[0]?.columns ?? ["campaign"]).map((name) => make("th", {scope: "col"}, name)))),
    make("tbody", {}, ...found.map(({sent, problem, row}) => make("tr", {title: row.directory},
      ...(sent ? sent.line.map((cell) => make("td", {}, cell)) : [make("td", {}, row.name), make("td", {colSpan: 6}, problem)])))));
}
