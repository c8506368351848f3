// What is looked at (a campaign, a record, a chain, what it is compared with: all in the address) and where its data come from.
import {chain, chainChoices} from "./chains.js";
import {compare} from "./compare.js";
import {controls} from "./controls.js";
import {at, speak} from "./dom.js";
import {nothing} from "./figure.js";
import {clearOther, other, otherAgain, otherFrom, otherSaid} from "./other.js";
import {campaigns, decisions, headline, infinite} from "./panels.js";
import {pipeline} from "./pipeline.js";
import {silicon} from "./silicon.js";
import {transition} from "./transition.js";

const MACHINE_MS = 2000;  // samples come every two seconds
const seen = {table: [], state: null, live: null, decided: [], sent: null, chain: null, machine: null, beside: new Map()};
const where = {campaign: 0, at: null, chain: "", compare: [], span: "all"};
let stream = null, wanted = 0, playing = null;

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  where.campaign = Number(given.get("campaign") ?? 0) || 0;
  where.at = given.has("at") ? Number(given.get("at")) || null : null;
  where.chain = given.get("chain") ?? "";
  where.compare = (given.get("compare") ?? "").split(",").filter((text) => /^\d+$/.test(text)).map(Number);
  where.span = given.get("span") === "minute" ? "minute" : "all";
}

function writeAddress() {
  const given = new URLSearchParams({campaign: where.campaign});
  if (where.at !== null) given.set("at", where.at);
  if (where.chain) given.set("chain", where.chain);
  if (where.compare.length) given.set("compare", where.compare.join(","));
  if (where.span !== "all") given.set("span", where.span);
  history.replaceState(null, "", `#${given}`);
}

const ask = (what, more = {}) => asked(what, {campaign: where.campaign, ...(where.at === null ? {} : {at: where.at}), ...more});

// Ask, and draw the answer; not where something else is looked at by then, nor after the answer to a later question.
const questions = {}, drawn = {};
async function show(what, draw, more = {}) {
  const {campaign, at: record} = where, mine = questions[what] = (questions[what] ?? 0) + 1;
  const data = await ask(what, more);
  if (campaign !== where.campaign || record !== where.at || mine < (drawn[what] ?? 0)) return;
  drawn[what] = mine;
  draw(data);
}

async function asked(what, given) {
  const query = new URLSearchParams(given);
  const answer = await fetch(`${what}?${query}`);
  const data = await answer.json().catch(() => ({error: `the server answered ${answer.status}`}));
  if (!answer.ok) throw new Error(data.error);
  return data;
}

function problem(text) {
  at("problem").hidden = !text;
  at("problem").textContent = text;
}

function showTime() {
  const records = seen.table[where.campaign]?.records ?? 1, slider = at("time");
  slider.max = Math.max(records, 1);
  if (document.activeElement !== slider || where.at === null) slider.value = where.at ?? records;
  const clock = seen.state ? new Date(1000 * seen.state.clock).toISOString().slice(0, 19).replace("T", " ") : "";
  at("time-text").textContent = `${where.at ?? records} of ${records}, ${clock} UTC`;
  at("now").setAttribute("aria-pressed", String(where.at === null));
  otherFrom(where.at);
}

function showTable() {
  campaigns(seen.table, where.campaign, (number) => { Object.assign(where, {campaign: number, at: null, chain: ""}); begin(); }, where.compare, (number) => {
    where.compare = where.compare.includes(number) ? where.compare.filter((other) => other !== number) : [...where.compare, number].sort((a, b) => a - b);
    writeAddress();
    showCompared();
  });
}

function showTransition(sent) {
  seen.sent = sent;
  transition(sent);
  infinite(sent);
  if (seen.chain) chain(seen.chain, sent.support);  // its crossings are known now
  showCompared();
}

const showChain = (sent) => chain(seen.chain = sent, seen.sent?.support);

// Others are shown as they are now, and asked for again when they have grown; the campaign of the page is shown as it is.
async function showCompared() {
  const rows = where.compare.map((number) => seen.table[number]).filter(Boolean);
  if (rows.length < 2) return compare([]);
  const found = await Promise.all(rows.map(async (row) => {
    if (row.campaign === where.campaign && seen.sent) return {row, sent: seen.sent};
    const kept = seen.beside.get(row.campaign);
    if (kept?.records === row.records) return kept;
    try { return {row, records: row.records, sent: await asked("transition", {campaign: row.campaign})}; } catch (error) { return {row, problem: error.message}; }
  }));
  for (const one of found) if (one.records) seen.beside.set(one.row.campaign, one);
  if (rows.every((row) => where.compare.includes(row.campaign))) compare(found);
}

function showMachine(sent) {
  seen.machine = sent;
  pipeline(sent);
  silicon(sent);
  for (const span of ["all", "minute"]) at(`span-${span}`).setAttribute("aria-pressed", String(where.span === span));
}

function showState(state) {
  seen.state = state;
  document.title = at("title").textContent = `${state.view.name}: metalforge`;
  at("status").textContent = where.at === null
    ? state.view.status + (state.view.ending ? `: ${state.view.ending}` : "") : `as it was at record ${state.at}`;
  problem(state.problem);
  speak(state.view);
  headline(state);
  infinite(seen.sent);
  const chosen = chainChoices(state, where.chain);
  controls(where.campaign, state, where.at !== null);
  showTime();
  return chosen;
}

const showDecisions = (rows) => decisions(seen.decided = rows, where.at, go);

// All panels at one record, or now. An answer that comes after the next question is dropped.
async function look({figure = true} = {}) {
  const mine = ++wanted, fresh = () => mine === wanted;
  try {
    const state = await ask("state");
    if (!fresh()) return;
    const name = showState(state);
    await Promise.all([show("decisions", showDecisions), name ? show("chain", showChain, {chain: name}) : null]);
    if (fresh()) await show("machine", showMachine, {span: where.span});
    if (fresh() && figure) await show("transition", showTransition);
  } catch (error) {
    if (fresh()) problem(error.message);
  }
}

function go(record) {
  where.at = record;
  writeAddress();
  showTime();
  look();
}

function listen() {
  stream?.close();
  stream = new EventSource(`events?campaign=${where.campaign}`);
  let rows = -1, decided = -1, figure = null, machine = 0;
  const live = () => where.at === null;
  stream.addEventListener("campaigns", (event) => { seen.table = JSON.parse(event.data); showTable(); showTime(); });
  stream.addEventListener("problem", (event) => problem(JSON.parse(event.data)));
  stream.addEventListener("state", async (event) => {
    seen.live = JSON.parse(event.data);
    if (!live()) return;
    const name = showState(seen.live), {rows_at: newRows, decided: newDecided} = seen.live;
    try {
      if (newRows !== rows && name) { rows = newRows; await show("chain", showChain, {chain: name}); }
      if (newDecided !== decided) { decided = newDecided; await show("decisions", showDecisions); }
      if (Date.now() - machine >= MACHINE_MS && !document.hidden) { machine = Date.now(); await show("machine", showMachine, {span: where.span}); }
    } catch (error) { problem(error.message); }
  });
  stream.addEventListener("transition", async (event) => {
    if (!live() || event.data === figure || event.data === "-1") return;
    figure = event.data;
    try { await show("transition", showTransition); } catch (error) { problem(error.message); }
  });
  stream.onerror = () => { at("status").textContent = "the server does not answer; trying again"; };
}

function begin() {
  pause();
  writeAddress();
  seen.sent = seen.chain = seen.machine = null;
  clearOther();
  // Nothing of the campaign before stands beside what is of this one.
  for (const place of document.querySelectorAll("[id$=-plot]")) nothing(place);
  at("transition-at").textContent = at("bottleneck").textContent = at("rewired").textContent = "";
  listen();
  look();
}

function pause() {
  clearInterval(playing);
  playing = null;
  at("play").textContent = "play";
}

let scrubbing = 0;
at("time").addEventListener("input", () => {
  pause();
  where.at = Number(at("time").value);
  writeAddress();
  showTime();
  // The figure takes longest: it waits until the hand rests.
  clearTimeout(scrubbing);
  look({figure: false});
  scrubbing = setTimeout(() => look(), 350);
});
at("now").addEventListener("click", () => { pause(); where.at = null; writeAddress(); look(); });
at("play").addEventListener("click", () => {
  if (playing) return pause();
  const records = seen.table[where.campaign]?.records ?? 1, step = Math.max(1, Math.round(records / 60));
  if (where.at === null || where.at >= records) where.at = 1;
  at("play").textContent = "pause";
  playing = setInterval(() => {
    const next = Math.min(where.at + step, seen.table[where.campaign]?.records ?? where.at);
    if (next === where.at) return pause();
    go(next);
  }, 700);
});
at("chain").addEventListener("change", async () => {
  where.chain = at("chain").value;
  writeAddress();
  try { await show("chain", showChain, {chain: where.chain}); } catch (error) { problem(error.message); }
});
at("other-ask").addEventListener("click", async () => {
  const campaign = where.campaign;
  at("other-ask").disabled = true;
  otherSaid("another process works it out");
  try { const sent = await ask("otherwise", {steerer: at("other-steerer").value}); if (campaign === where.campaign) other(sent); } catch (error) { otherSaid(error.message); }
  at("other-ask").disabled = false;
});
for (const name of ["what", "by", "head", "trusted"]) at(`filter-${name}`).addEventListener("change", () => showDecisions(seen.decided));
for (const span of ["all", "minute"]) {
  at(`span-${span}`).addEventListener("click", async () => {
    where.span = span;
    writeAddress();
    try { await show("machine", showMachine, {span}); } catch (error) { problem(error.message); }
  });
}
// Pictures have the width of the page when they are drawn.
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    if (seen.sent) showTransition(seen.sent); else if (seen.chain) showChain(seen.chain);
    if (seen.machine) showMachine(seen.machine);
    otherAgain();
  }, 200);
});
addEventListener("hashchange", () => { readAddress(); begin(); });

readAddress();
begin();
