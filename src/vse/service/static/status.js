// The lines above the results: how many there are, notes about them, and errors.

import { byId } from "./dom.js";
import { UNLIKELY } from "./query.js";

const NO_CLEAR_MATCH = "No clear match. The closest results come first.";

export function showSearchStatus(found, results) {
  const count = results.length;
  const notes = [`${count} ${count === 1 ? "result" : "results"}${found.more ? " so far" : ""}`];
  notes.push(`${Math.max(1, Math.round(found.milliseconds))} ms`);
  if (!found.exact) notes.push("approximate");
  if (found.unknown.length) notes.push(`unknown words: ${found.unknown.join(", ")}`);
  if (found.cut.length) notes.push("the text is too long, its end was ignored");
  const best = results[0]?.confidence ?? null;
  show(notes.join(" · "), best !== null && best < UNLIKELY ? NO_CLEAR_MATCH : "");
}

export function showBrowseStatus(results, excluded) {
  const remark = excluded.length ? "Excluded words take effect once you search for something." : "";
  show(results.length ? "Newest first" : "", remark);
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
  byId("status").textContent = status;
  byId("remark").textContent = remark;
  byId("remark").hidden = !remark;
}
