// The lines above the results: how many there are, what to know about them, and what went wrong.

import { byId } from "./dom.js";
import { UNLIKELY } from "./question.js";

const NOTHING_STANDS_OUT = "Nothing stands out for this search; the nearest come first.";

export function tellSearch(found, results) {
  const count = results.length;
  const notes = [`${count} ${count === 1 ? "result" : "results"}${found.more ? " so far" : ""}`];
  notes.push(`${Math.max(1, Math.round(found.milliseconds))} ms`);
  if (!found.exact) notes.push("approximate");
  if (found.unknown.length) notes.push(`words the model does not know: ${found.unknown.join(", ")}`);
  if (found.cut.length) notes.push("the text was longer than the model reads");
  const best = results[0]?.confidence ?? null;
  say(notes.join(" · "), best !== null && best < UNLIKELY ? NOTHING_STANDS_OUT : "");
}

export function tellBrowsing(results, unwanted) {
  const remark = unwanted.length ? "Words are left out once there is something to look for." : "";
  say(results.length ? "Newest first" : "", remark);
}

export function complain(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = false;
  byId("status").textContent = "";
  byId("remark").hidden = true;
}

function say(status, remark) {
  byId("notice").hidden = true;
  byId("notice").textContent = "";
  byId("status").textContent = status;
  byId("remark").textContent = remark;
  byId("remark").hidden = !remark;
}
