// Everything that is known about the file of the open result: date, place, camera, captions, keywords, its path.

import { get } from "./api.js";
import { byId, bytes, clock, day, element, pairs } from "./dom.js";
import { fullPath } from "./files.js";
import { span } from "./tile.js";

const NO_RESPONSE = "The server is not responding.";

export class Details {
  // search(text) searches for a keyword; filter(name, value) for what has the same value; found(item) is called with
  // the details.
  constructor({ search, filter, found }) {
    this.search = search;
    this.filter = filter;
    this.found = found;
    this.result = null;
  }

  async show(result) {
    this.result = result;
    this.#write([], {});
    try {
      const item = await get(`items/${result.id}`, [], { cached: true });
      if (this.result !== result) return;
      this.#write(this.#rows(item, result), item);
      this.found(item);
    } catch (problem) {
      if (this.result !== result) return;
      this.#write([["Error", problem.status === undefined ? NO_RESPONSE : problem.message]], {});
    }
  }

  #write(facts, { title, description, captions = [], keywords = [], ocr }) {
    pairs(byId("viewer-facts"), facts);
    const texts = [...new Set([title, description, ...captions].filter(Boolean))];
    byId("viewer-captions").replaceChildren(...texts.map((text) => element("blockquote", { text })));
    const chips = keywords.map((word) => button("keyword", word, `Search for ${word}`, () => this.search(`"${word}"`)));
    byId("viewer-keywords").replaceChildren(...chips);
    byId("viewer-keywords").hidden = !chips.length;
    byId("viewer-ocr").hidden = !ocr;
    byId("viewer-ocr-text").textContent = ocr ?? "";
  }

  #rows(item, result) {
    const only = (name) => {
      const value = item[name];
      return value ? button("link", value, `Only ${name} ${value}`, () => this.filter(name, value)) : "";
    };
    const located = item.latitude !== null && item.latitude !== undefined;
    return [
      ["Taken", item.taken === null ? "" : `${day(item.taken)}${time(item.date)}`],
      ["Place", only("place")],
      ["Location", located ? `${item.latitude.toFixed(4)}, ${item.longitude.toFixed(4)}` : ""],
      ["Camera", only("camera")],
      ["Size", `${item.width} × ${item.height}, ${bytes(item.size)}`],
      ["Duration", item.duration === null ? "" : clock(item.duration)],
      ["Moment", span(result)],
      ["Folder", only("folder")],
      ["Path", item.root ? fullPath(item) : ""],
    ];
  }
}

function button(className, text, label, act) {
  const made = element("button", { type: "button", className, title: label, "aria-label": label, text });
  made.addEventListener("click", act);
  return made;
}

// "2024-05-31T18:02:00": the time, unless it is unknown and so midnight.
function time(date) {
  const found = /T(\d\d:\d\d)/.exec(date ?? "");
  return found && !date.endsWith("T00:00:00") ? `, ${found[1]}` : "";
}
