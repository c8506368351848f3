// The tables: campaigns, the result, and decisions. They draw what the server sent, and know nothing of time or network.
import {at, make, number, renew, words} from "./dom.js";
import {spark} from "./plot.js";

export function campaigns(rows, chosen, choose, compared, comparing) {
  at("compare-head").hidden = rows.length < 2;
  renew(at("campaign-rows"), rows.map((row) => {
    const open = make("button", {type: "button", className: "link", onclick: () => choose(row.campaign), "data-key": `open ${row.campaign}`}, row.name || row.directory);
    const beside = make("input", {type: "checkbox", checked: compared.includes(row.campaign), onchange: () => comparing(row.campaign), "data-key": `compare ${row.campaign}`, "aria-label": `compare ${row.name || row.directory}`});
    const line = make("tr", {title: row.directory},
      ...(rows.length < 2 ? [] : [make("td", {}, beside)]),
      make("td", {}, open),
      make("td", {}, row.problem ? `cannot be read on: ${row.problem}` : row.ending ? `${row.status}: ${row.ending}` : row.status),
      make("td", {className: "number"}, row.found, row.found && !row.established ? " (not established)" : ""),
      make("td", {}, spark(row.spark)),
      make("td", {className: "number"}, row.left),
      make("td", {}, row.silicon.join("; ")));
    if (row.campaign === chosen) line.setAttribute("aria-current", "true");
    return line;
  }));
}

export function headline(state) {
  const {view} = state;
  at("headline").replaceChildren(...state.systems.flatMap((one) => [
    make("p", {}, `${one.system}: `, make("span", {className: "big"}, one.found || words.missing),
      make("span", {className: "soft"}, !one.found ? ` ${one.reason}` : one.established ? " established" : " not established")),
    make("ul", {className: "evidence"}, ...one.evidence.map((item) => make("li", {className: item.holds ? "" : "lacks"},
      `${item.holds ? "\u2713" : "\u2717"} ${item.name}: ${item.found}`, make("span", {className: "soft"}, item.needed ? ` (${item.needed})` : "")))),
  ]), make("p", {id: "infinite"}));
  at("budgets").replaceChildren(
    ...view.budgets.map((budget) => make("p", {}, `${budget.name}: `, make("progress", {max: 1, value: budget.share, "aria-label": budget.name}),
      ` ${number(budget.used, 4) || "-"} of ${number(budget.limit, 4)} ${budget.unit}`)),
    make("p", {className: "soft"}, `${view.trajectories} ${words.update}s, ${view.per_second < 10 ? number(view.per_second, 2) : view.per_second.toFixed(0)} a second, ${state.elapsed} so far`
      + (state.left ? `, about ${state.left} left (${view.ends_by})` : "") + `; ordering ${view.ordering}, steered by ${view.steerer}`),
    ...(view.heads ? [make("p", {className: "soft"}, view.heads)] : []));
  at("energy").replaceChildren(...state.energy.filter((entry) => entry.energy !== null).map((entry) =>
    make("p", {className: "soft"}, `energy of ${entry.substrate ?? "host"}: ${joulesOf(entry)}, ${entry.source}`)));
}

// A board that is held draws its idle power all the time; what its work took comes on top.
const joulesOf = ({energy, idle, held_s: held}) => `${number(energy.value, 4)} J` + (idle ? ` for its work and ${number(idle.value, 4)} J idle in ${number(held, 4)} s` : "");

export function infinite(sent) {
  const there = at("infinite"), found = sent?.summary.infinite;
  if (there === null) return;
  if (!found) return there.replaceChildren();
  const text = found.value === null ? `${found.name}: ${found.reason}` : `${found.name}: ${words.found} = ${sent.quoted}`;
  there.replaceChildren(text + (found.value === null ? "" : found.established ? ", established" : ", not established"));
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
  renew(at("decision-rows"), shown.slice(-300).reverse().map((d) => {
    const open = make("button", {type: "button", className: "link", onclick: () => go(d.at), "data-key": d.at, "aria-label": `state at record ${d.at}`}, String(d.at));
    const line = make("tr", {}, make("td", {className: "number"}, open), make("td", {className: "number"}, `${d.seconds.toFixed(1)} s`), make("td", {className: "number"}, d.what),
      make("td", {}, d.trusted === false && d.head ? `${d.by} (${d.head} not trusted)` : d.by), ...[d.chain, number(d.coordinate), number(d.value), number(d.baseline)].map((text) => make("td", {className: "number"}, text)),
      make("td", {className: "why"}, d.reason));
    if (d.at === current) line.setAttribute("aria-current", "true");
    return line;
  }));
  at("decision-count").textContent = `${shown.length} of ${rows.length} decisions` + (shown.length > 300 ? ", the last 300 are shown" : "");
}
