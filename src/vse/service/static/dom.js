// Small helpers for making elements. Text always goes in as text, so that a file name can never be markup.

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
  const told = rows.filter(([, value]) => value);
  const pair = ([name, value]) => [element("dt", { text: name }), element("dd", { text: value })];
  list.replaceChildren(...told.flatMap(pair));
}

// A list of folders may hold the largest ones only, and an address name any.
export function choose(select, value) {
  select.value = value;
  if (value && select.value !== value) select.append(element("option", { value, text: value, selected: true }));
}

// A click beside the dialog closes it; one on its own edge, or one that began inside to mark text, does not.
export function closesBeside(dialog) {
  const beside = ({ target, clientX: x, clientY: y }) => {
    const box = dialog.getBoundingClientRect();
    return target === dialog && (x < box.left || x > box.right || y < box.top || y > box.bottom);
  };
  let began = false;
  dialog.addEventListener("pointerdown", (event) => (began = beside(event)));
  dialog.addEventListener("click", (event) => began && beside(event) && dialog.close());
}

export const percent = (part) => (part < 0.005 ? "< 1 %" : `${Math.round(part * 100)} %`);
export const scored = (score) => score.toFixed(3);

export function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

// Times of capture are local times written as if they were UTC, since cameras do not tell their zone.
export function day(seconds) {
  return new Date(seconds * 1000).toLocaleDateString(undefined, { dateStyle: "medium", timeZone: "UTC" });
}

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (count >= 1000 && step < units.length - 1) [count, step] = [count / 1000, step + 1];
  return `${step && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[step]}`;
}
