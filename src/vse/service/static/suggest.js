// Suggestions while the search box is empty: recent searches, and examples from what the collection holds.

import { byId, element, year } from "./dom.js";
import { written } from "./typed.js";

const KEPT = 8;
const EXAMPLES = 6;
const KEY = "vse.recent";

export class Suggestions {
  // use(text) puts a text into the search box and searches for it.
  constructor(use) {
    this.use = use;
    this.collection = null;
    byId("suggest").addEventListener("click", ({ target }) => {
      const chosen = target.closest("[data-text]");
      if (chosen) this.use(chosen.dataset.text);
    });
    byId("recent-clear").addEventListener("click", () => {
      write([]);
      this.show(true);
      byId("words").focus();
    });
  }

  describe(collection) {
    this.collection = collection;
    byId("examples").replaceChildren(...examples(collection).map(([kind, label, text]) => example(kind, label, text)));
    this.show(!byId("suggest").hidden);
  }

  // Called with each search that the user has completed.
  remember(text) {
    const wanted = text.trim();
    if (wanted) write([wanted, ...read().filter((each) => each !== wanted)].slice(0, KEPT));
  }

  show(visible) {
    const recent = read();
    const chip = (text) => element("button", { type: "button", className: "plain", "data-text": text, text });
    byId("recent").replaceChildren(...recent.map(chip));
    byId("recent-part").hidden = !recent.length;
    byId("examples-part").hidden = !byId("examples").childElementCount;
    byId("suggest").hidden = !visible || (!recent.length && byId("examples-part").hidden);
  }
}

// Storage may be forbidden, full, or hold what another version wrote.
function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string").slice(0, KEPT) : [];
  } catch {
    return [];
  }
}

function write(texts) {
  try {
    if (texts.length) localStorage.setItem(KEY, JSON.stringify(texts));
    else localStorage.removeItem(KEY);
  } catch {
    // without storage there are no recent searches
  }
}

// The largest places, folders and cameras, and the last years: one of each kind first, then a second one, then no more
// than fit in a line.
function examples({ folders = [], places = [], cameras = [], first, last }) {
  const typed = (kind, entries) => entries.slice(0, 2).map(([label, value]) => [kind, label, written(kind, value)]);
  const named = (entries) => entries.map(({ name }) => [name, name]);
  const kinds = [
    typed("place", named(places)),
    years(first, last),
    typed("folder", largest(folders).map(({ path }) => [path.split("/").at(-1), path])),
    cameras.length > 1 ? typed("camera", named(cameras)) : [],
  ];
  const ranked = [0, 1].flatMap((at) => kinds.filter((found) => at < found.length).map((found) => found[at]));
  const offered = new Set(ranked.slice(0, EXAMPLES));
  return kinds.flat().filter((each) => offered.has(each));
}

function years(first, last) {
  if ((last ?? null) === null) return [];
  const of = (seconds) => Number(year(seconds));
  const found = [of(last), of(last) - 1].filter((each) => each >= of(first));
  return found.map((each) => ["year", String(each), `after:${each} before:${each + 1}`]);
}

// Years are listed already, and a folder that holds only another one says nothing more than that.
function largest(folders) {
  const inner = ({ path, files }) => folders.some((each) => each.path.startsWith(`${path}/`) && each.files === files);
  const named = folders.filter((folder) => !/^\d{4}$/.test(folder.path) && !inner(folder));
  return named.sort((one, other) => other.files - one.files);
}

function example(kind, label, text) {
  const shown = [element("span", { className: "kind", text: `${kind} ` }), label];
  return element("button", { type: "button", className: "plain", "data-text": text }, ...shown);
}
