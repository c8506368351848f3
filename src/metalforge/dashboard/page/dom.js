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
export const lattice = ([x, y, z, t]) => (t === undefined ? `${x} particles` : x === y && y === z ? `${x}\u00b3\u00d7${t}` : `${x}\u00d7${y}\u00d7${z}\u00d7${t}`);

// How the campaign that is looked at is spoken of: its theory says so. Panels that say nothing of its target are hidden.
export let words = {};
export function speak(view) {
  words = view.words;
  for (const place of document.querySelectorAll("[data-word]")) {
    if (place.textContent !== words[place.dataset.word]) place.textContent = words[place.dataset.word];
  }
  for (const part of document.querySelectorAll("section[data-target]")) part.hidden = part.dataset.target !== view.target;
}
