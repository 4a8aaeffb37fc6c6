// Helpers for creating elements and formatting values. Text is always set as text: a file name can never be markup.

export const byId = (id) => document.getElementById(id);

export function element(name, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function pairs(list, rows) {
  const shown = rows.filter(([, value]) => value);
  const pair = ([name, value]) => [element("dt", { text: name }), element("dd", { text: value })];
  list.replaceChildren(...shown.flatMap(pair));
}

// The list holds the largest folders only; a URL may name any.
export function choose(select, value) {
  select.value = value;
  if (value && select.value !== value) select.append(element("option", { value, text: value, selected: true }));
}

// Not on a click on its padding, nor on one that started inside to select text.
export function closeOnOutsideClick(dialog) {
  const outside = ({ target, clientX: x, clientY: y }) => {
    const box = dialog.getBoundingClientRect();
    return target === dialog && (x < box.left || x > box.right || y < box.top || y > box.bottom);
  };
  let started = false;
  dialog.addEventListener("pointerdown", (event) => (started = outside(event)));
  dialog.addEventListener("click", (event) => started && outside(event) && dialog.close());
}

export const percent = (part) => (part < 0.005 ? "<1%" : `${Math.round(part * 100)}%`);
export const scored = (score) => score.toFixed(3);

export function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

// Capture times are local times stored as if they were UTC, since cameras do not record their time zone.
export function day(seconds) {
  return new Date(seconds * 1000).toLocaleDateString(undefined, { dateStyle: "medium", timeZone: "UTC" });
}

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (count >= 1000 && step < units.length - 1) [count, step] = [count / 1000, step + 1];
  return `${step && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[step]}`;
}
