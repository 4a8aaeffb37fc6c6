// What is said when there are no results: which condition left nothing, and a button that drops it.

import { byId, counted, element } from "./dom.js";

const HOW_TO_INDEX = "Add a folder with: vse index FOLDER --into NAME";
const UNKNOWN_WORDS = "The model does not know any of these words.";
const FIELDS = { kind: "type" }; // names of the server and of the page
const DATES = ["after", "before"];

// found is the response, browsing whether there was no query; drop(...names) removes conditions and searches again.
export function emptyMessage({ found, query, collection, browsing, drop }) {
  if (collection?.files === 0) return message("This collection is empty", HOW_TO_INDEX);
  const unknown = !browsing && found.query_id === null && found.unknown?.length > 0;
  if (unknown) return message("No results", UNKNOWN_WORDS, ...dropAll(query, drop));
  const { condition, without = 0 } = found.empty_reason ?? {};
  if (condition === "relevance" || condition === "confidence") return noMatch(query, drop);
  if (condition === "exclude") {
    const text = `${counted(without, "result")} would fit, but what you exclude is in each of them.`;
    return message("No results", text, button("Exclude nothing", () => drop("exclude")));
  }
  const active = [...query.active.keys()].filter((name) => name !== "relevance");
  const blamed = FIELDS[condition] ?? condition ?? (active.length === 1 ? active[0] : undefined);
  const title = browsing ? "No files" : "No results";
  if (active.includes(blamed)) return message(title, ...oneFilter(blamed, query, without, drop));
  const hint = active.length ? "The filters together leave nothing." : "Try other words.";
  return message(title, hint, ...dropAll(query, drop));
}

// The server refused the query, and the page shows its reason elsewhere.
export const refusedMessage = (query, drop) => message("No results", "", ...dropAll(query, drop));

function oneFilter(name, query, without, drop) {
  const rest = without ? ` Without it there ${without === 1 ? "is" : "are"} ${counted(without, "result")}.` : "";
  const names = DATES.includes(name) ? DATES.filter((each) => query.active.has(each)) : [name];
  const text = `The filter ${described(name, query.active.get(name))} leaves nothing.${rest}`;
  return [text, button(name === "words" ? "Search without quotes" : "Drop this filter", () => drop(...names))];
}

function noMatch(query, drop) {
  if (byId("good").checked) {
    return message("No good matches", "Nothing here is a good match.", button("Show weaker matches", () => drop("relevance")));
  }
  const words = query.parts().wanted;
  const text = words ? `Nothing in this collection seems to show “${words}”.` : "Nothing in this collection seems to fit.";
  return message("Nothing here matches", text, button("Show the closest anyway", () => drop("relevance")), ...dropAll(query, drop));
}

// A single filter is named, several are dropped together.
function dropAll(query, drop) {
  const names = [...query.active.keys()].filter((name) => name !== "relevance");
  if (!names.length) return [];
  const text = names.length === 1 ? `Drop the filter ${described(names[0], query.active.get(names[0]))}` : "Drop all filters";
  return [button(text, () => drop(...names))];
}

const SAID = { type: (value) => `“${value}s only”`, words: (value) => `exact words “${value}”` };
const described = (name, value) => SAID[name]?.(value) ?? `${name} “${value}”`;

function message(title, text, ...buttons) {
  const made = [element("h2", { text: title }), element("p", { text })];
  return buttons.length ? [...made, element("p", { className: "choices" }, ...buttons)] : made;
}

function button(text, act) {
  const made = element("button", { type: "button", className: "plain", text });
  made.addEventListener("click", act);
  return made;
}
