// What is said when there are no results: which condition left nothing, and a button that drops it.

import { byId, counted, element } from "./dom.js";

const HOW_TO_INDEX = "Add a folder with: vse index FOLDER --into NAME";
const UNKNOWN_WORDS = "The model does not know any of these words.";
const FIELDS = { kind: "type", words: "quoted words" }; // names of the server and of the page
const DATES = ["after", "before"];

// found is the response, browsing whether there was no query; drop(...names) removes conditions and searches again.
export function emptyMessage({ found, query, collection, browsing, drop }) {
  if (collection?.files === 0) return message("This collection is empty", HOW_TO_INDEX);
  const unknown = !browsing && found.query_id === null && found.unknown?.length > 0;
  const { condition, without = 0 } = found.empty_reason ?? {};
  if (unknown) return message("No results", UNKNOWN_WORDS, ...dropAll(query, drop));
  if (condition === "relevance" || condition === "confidence") return noMatch(query, without, drop);
  const name = FIELDS[condition] ?? condition;
  if (name === "exclude") {
    const text = `${counted(without, "result")} would fit, but what you exclude is in each of them.`;
    return message("No results", text, button("Exclude nothing", () => drop("exclude")));
  }
  const blamed = DATES.includes(name) ? DATES.filter((each) => query.active.has(each)) : [name];
  if (query.active.has(name)) {
    const rest = without ? ` Without it there ${without === 1 ? "is" : "are"} ${counted(without, "result")}.` : "";
    const text = `The filter ${described(name, query.active.get(name))} leaves nothing.${rest}`;
    return message(browsing ? "No files" : "No results", text, button("Drop this filter", () => drop(...blamed)));
  }
  const hint = query.active.size ? "The filters together leave nothing." : "Try other words.";
  return message(browsing ? "No files" : "No results", hint, ...dropAll(query, drop));
}

function noMatch(query, without, drop) {
  const strict = byId("good").checked;
  const hidden = without ? ` ${counted(without, "weaker result is", "weaker results are")} hidden.` : "";
  const words = query.parts().wanted;
  if (strict) {
    return message("No good matches", `Nothing here is a good match.${hidden}`, button("Show weaker matches", () => drop("relevance")));
  }
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

const described = (name, value) => (name === "type" ? `“${value}s only”` : `${name} “${value}”`);

function message(title, text, ...buttons) {
  const made = [element("h2", { text: title }), element("p", { text })];
  return buttons.length ? [...made, element("p", { className: "choices" }, ...buttons)] : made;
}

function button(text, act) {
  const made = element("button", { type: "button", className: "plain", text });
  made.addEventListener("click", act);
  return made;
}
