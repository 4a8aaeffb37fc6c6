// The date filter: a first and a last month, either of which may be empty.

import { byId, placeBelow } from "./dom.js";

export class Dates {
  constructor(changed) {
    const popover = byId("dates");
    const button = byId("dates-open");
    placeBelow(popover, button, 17);
    for (const name of ["after", "before"]) byId(name).addEventListener("change", changed);
    byId("dates-clear").addEventListener("click", () => {
      byId("after").value = byId("before").value = "";
      popover.hidePopover();
      button.focus();
      changed();
    });
  }

  // In order, even if the user has swapped them.
  get range() {
    const first = byId("after").value.trim();
    const last = byId("before").value.trim();
    return first && last && first > last ? [last, first] : [first, last];
  }

  // The API's "before" is exclusive; people mean the whole last month.
  parameters() {
    const [first, last] = this.range;
    const found = first ? [["after", first]] : [];
    return last ? [...found, ["before", following(last)]] : found;
  }

  show() {
    const [first, last] = this.range;
    byId("dates-shown").textContent = label(first, last);
    byId("dates-open").classList.toggle("set", Boolean(first || last));
    byId("dates-clear").disabled = !(first || last);
  }
}

function label(first, last) {
  if (!first && !last) return "Any time";
  if (!last) return `Since ${month(first)}`;
  if (!first) return `Until ${month(last)}`;
  return first === last ? month(first) : `${month(first)} – ${month(last)}`;
}

function month(text) {
  const at = new Date(`${text}-01T00:00:00Z`);
  if (Number.isNaN(at.getTime())) return text; // browsers without a month field accept any text
  return at.toLocaleDateString(undefined, { month: "short", year: "numeric", timeZone: "UTC" });
}

function following(text) {
  const match = /^(\d{4})(?:-(\d{1,2}))?$/.exec(text);
  if (!match) return text; // the server reports what is wrong with it
  const [year, number] = [Number(match[1]), Number(match[2] ?? 12)];
  const next = number >= 12 ? [year + 1, 1] : [year, number + 1];
  return `${String(next[0]).padStart(4, "0")}-${String(next[1]).padStart(2, "0")}`;
}
