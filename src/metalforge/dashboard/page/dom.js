// Elements and words that all panels share. Text goes in as text, never as markup.
export const at = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-")) element.setAttribute(key, value); else element[key] = value;
  }
  element.append(...children);
  return element;
}

// New children for an element: whatever had the focus there has it again, by its `data-key`.
export function renew(parent, children) {
  const held = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children);
  if (held !== undefined) [...parent.querySelectorAll("[data-key]")].find((element) => element.dataset.key === held)?.focus();
}

export const number = (value, digits = 5) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(digits))));
export const percent = (share) => (share === null || share === undefined ? "" : `${Math.round(100 * share)} %`);

const POWERS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
// The name of a system: 16\u00b2 for [16, 16], 8\u00b3\u00d74 for [8, 8, 8, 4], N = 500 for one number; as the report writes it.
export function systemText(system) {
  if (system.length === 1) return `N = ${system[0]}`;
  const n = [system.length, system.length - 1].find((count) => count > 1 && new Set(system.slice(0, count)).size === 1);
  return n ? [`${system[0]}${POWERS[n] ?? `^${n}`}`, ...system.slice(n)].join("\u00d7") : system.join("\u00d7");
}

// How the campaign that is looked at is spoken of: its theory says so. Panels that say nothing of its target are hidden.
export let words = {};
export function speak(view) {
  words = view.words;
  for (const place of document.querySelectorAll("[data-word]")) {
    if (place.textContent !== words[place.dataset.word]) place.textContent = words[place.dataset.word];
  }
  for (const part of document.querySelectorAll("section[data-target]")) part.hidden = part.dataset.target !== view.target;
}
