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
  const pair = ([name, value]) => [element("dt", { text: name }), element("dd", {}, value)];
  list.replaceChildren(...shown.flatMap(pair));
}

const ICONS = {
  check: ["m5 12.5 4.5 4.5L19 7.5"],
  chevron: ["m9 6 6 6-6 6"],
  missing: ["M4 4l16 16", "M8.5 5H18a2 2 0 0 1 2 2v9.5M20 19H6a2 2 0 0 1-2-2V6.5", "m5 17 4.5-4 3.5 3"],
  pause: ["M8.5 5.5v13M15.5 5.5v13"],
  play: ["M8 5.5v13l10.5-6.5z"],
};

export function icon(name) {
  const paths = ICONS[name].map((d) => drawing("path", { d }));
  return drawing("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: "drawn" }, ...paths);
}

const EDGE = 8; // pixels between a popover and the edge of the page

// Opens a popover below its button. Not every browser can anchor one.
export function placeBelow(popover, button, rem) {
  popover.addEventListener("beforetoggle", ({ newState }) => {
    button.setAttribute("aria-expanded", newState === "open");
    if (newState !== "open") return;
    const box = button.getBoundingClientRect();
    const page = document.documentElement;
    const width = Math.min(rem * parseFloat(getComputedStyle(page).fontSize), page.clientWidth - 2 * EDGE);
    const left = Math.min(Math.max(box.left, EDGE), page.clientWidth - width - EDGE);
    popover.style.setProperty("width", `${width}px`);
    popover.style.setProperty("left", `${left + scrollX}px`);
    popover.style.setProperty("top", `${box.bottom + scrollY + EDGE}px`);
    popover.style.setProperty("max-height", `${Math.max(160, innerHeight - box.bottom - 2 * EDGE)}px`);
  });
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

export const number = (value) => value.toLocaleString();
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
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

// The month as a heading: "May 2024".
export function month(seconds) {
  return new Date(seconds * 1000).toLocaleDateString(undefined, { month: "long", year: "numeric", timeZone: "UTC" });
}

export const year = (seconds) => String(new Date(seconds * 1000).getUTCFullYear());

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (count >= 1000 && step < units.length - 1) [count, step] = [count / 1000, step + 1];
  return `${step && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[step]}`;
}
