// The lines above the results: how many there are, notes about them, and errors.

import { byId, counted } from "./dom.js";
import { isWeak } from "./tile.js";

const NO_GOOD_MATCH = "No good match. The closest results come first.";

export function showSearchStatus(found, results) {
  const count = found.total ?? results.length;
  const open = found.more && (found.total ?? null) === null;
  const said = [`${counted(count, "result")}${open ? " so far" : ""}`];
  said.push(`${Math.max(1, Math.round(found.milliseconds))} ms`);
  if (!found.exact) said.push("approximate");
  const notes = found.notes ?? [];
  if (found.unknown.length && !notes.some((note) => note.startsWith("unknown:"))) said.push(`unknown words: ${found.unknown.join(", ")}`);
  if (found.cut.length) said.push("the text is too long, its end was ignored");
  const remarks = notes.map(worded);
  if (results.length && results.every(isWeak)) remarks.unshift(NO_GOOD_MATCH);
  show(results.length || said.length > 2 ? said.join(" · ") : "", remarks.join(" "));
}

export function showBrowseStatus(found, results, excluded) {
  const remark = excluded.length ? "Excluded words take effect once you search for something." : "";
  const total = (found.total ?? null) === null ? "" : `${counted(found.total, "file")} · `;
  show(results.length ? `${total}newest first` : "", remark);
}

export function showError(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = false;
  byId("status").textContent = "";
  byId("remark").hidden = true;
}

function show(status, remark) {
  byId("notice").hidden = true;
  byId("notice").textContent = "";
  byId("status").textContent = status.charAt(0).toUpperCase() + status.slice(1);
  byId("remark").textContent = remark;
  byId("remark").hidden = !remark;
}

// "language: This looks like French…": the code is for programs.
function worded(note) {
  const text = note.replace(/^[\w-]+: /, "");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;
}
