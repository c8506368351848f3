// Commands to the campaign that is looked at: what may be asked now, and what it said.
import {at, make} from "./dom.js";
import {otherChoices} from "./other.js";

// What a form asks for is in the words of the theory.
const formsOf = (words) => [
  {what: "extend", title: "Extend", button: "extend", fields: [
    {name: "seconds", label: "more time", unit: "s", type: "number", min: 1, step: "any"},
    {name: "trajectories", label: `more ${words.update}s`, unit: `${words.update}s`, type: "number", min: 1, step: 1},
    {name: "target_error", label: "target error", unit: words.error_of, type: "number", min: 0, step: "any"}]},
  {what: "steerer", title: "Steerer", button: "change", fields: [{name: "name", label: "steerer", options: []}]},
  {what: "system", title: words.system, button: "add", fields: [
    {name: "system", label: words.system, unit: `as in ${words.system_like}`, pattern: "[0-9,\\s]+", placeholder: words.system_like, required: true}]},
  {what: "coupling", title: "Couplings", button: "add", fields: [
    {name: "at", label: words.coupling, unit: `as in ${words.coupling_like}`, pattern: "[0-9.,\\s]+", placeholder: words.coupling_like, required: true},
    {name: "widen", label: "widen the range", type: "checkbox", value: "yes"}]},
  {what: "remove", title: "Remove couplings", button: "remove", fields: [
    {name: "at", label: words.coupling, unit: "no more visits there", pattern: "[0-9.,\\s]+", placeholder: words.coupling_like, required: true}]},
  {what: "rewire", title: "Screen", button: "rewire", fields: [{name: "screen", label: "screen", options: [
    ["before", "in the way of the blocks"], ["beside", "beside it"], ["auto", "left to its rule"]]}]},
];
const RUNS = new Set(["running", "paused"]);
let about = null, looked = null, asking = false;

function field({name, label, unit, options, ...more}, what) {
  const id = `control-${what}-${name}`;
  const input = options ? make("select", {id, name}) : make("input", {id, name, type: "text", autocomplete: "off", ...more});
  if (options) choose(input, options);
  return make("span", {className: "field"}, make("label", {htmlFor: id}, label), input, ...(unit ? [make("span", {className: "soft"}, unit)] : []));
}

function choose(select, options) {
  select.replaceChildren(...options.map((one) => make("option", {value: Array.isArray(one) ? one[0] : one}, Array.isArray(one) ? one[1] : one)));
}

function said(text, accepted) {
  at("control-said").textContent = text;
  at("control-said").className = accepted ? "" : "lacks";
}

async function command(what, asked = {}) {
  asking = true;
  show();
  said(`${what}: the campaign is asked`, true);
  try {
    const answer = await fetch(`command?campaign=${looked.campaign}`, {method: "POST", body: JSON.stringify({what, asked}),
      headers: {"Content-Type": "application/json", [about.header]: about.value}});
    const data = await answer.json().catch(() => ({error: `the server answered ${answer.status}`}));
    if (data.error) said(`${what}: ${data.error}`, false);
    else said(`${what}: ${data.accepted ? "accepted" : "refused"}, ${data.said}`, data.accepted);
  } catch (error) {
    said(`${what}: ${error.message}`, false);
  }
  asking = false;
  show();
}

function build({words, commands, target, steerer}) {
  at("control-fields").replaceChildren(...formsOf(words).filter(({what}) => commands.includes(what)).map(({what, title, button, fields}) => make("form", {id: `control-${what}`, onsubmit: (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].map(([name, text]) => [name, text.trim()]).filter(([, text]) => text);
    if (!given.length) return said(`${what}: fill in one of its fields`, false);
    command(what, Object.fromEntries(given));
  }}, make("fieldset", {}, make("legend", {}, title), ...fields.map((one) => field(one, what)), make("button", {}, button)))));
  const names = about?.steerers?.[target] ?? [];
  choose(at("control-steerer-name"), names);
  at("control-steerer-name").value = steerer;
  otherChoices(names, steerer);
}

function why() {
  if (!about) return "asking whether this page may command";
  if (!about.allowed) return about.why;
  if (looked.past) return "commands are for now: this is the past";
  if (!RUNS.has(looked.status)) return `the campaign is ${looked.status}, and takes no commands`;
  return asking ? "waiting for its answer" : "";
}

function show() {
  const reason = why(), paused = looked.status === "paused";
  at("control-why").textContent = reason;
  at("control-forms").hidden = about?.allowed === false;
  for (const part of at("control-forms").querySelectorAll("fieldset")) part.disabled = Boolean(reason);
  for (const what of ["pause", "resume", "stop"]) at(`control-${what}`).disabled = Boolean(reason) || (what === "pause" ? paused : what === "resume" && !paused);
}

for (const what of ["pause", "resume"]) at(`control-${what}`).addEventListener("click", () => command(what));
at("control-stop").addEventListener("click", () => at("control-sure").showModal());
at("control-sure").addEventListener("close", ({target: sure}) => { if (sure.returnValue === "stop") command("stop"); sure.returnValue = ""; });

// Called with every state that is shown: a campaign by its number, its status and steerer, and whether it is the past.
export async function controls(campaign, state, past) {
  const other = looked?.campaign !== campaign, first = looked === null;
  looked = {campaign, view: state.view, status: state.view.status, past};
  if (other) {
    build(looked.view);
    said("", true);
  }
  show();
  if (!first) return;
  about = await fetch("control").then((answer) => answer.json()).catch((error) => ({allowed: false, why: error.message}));
  build(looked.view);
  show();
}
