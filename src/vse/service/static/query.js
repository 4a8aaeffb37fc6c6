// The query: the fields of the page as parameters of a request and of the page's URL.

import { base } from "./api.js";
import { byId, element } from "./dom.js";
import { parse, without, written } from "./typed.js";

const FIELDS = ["folder", "place", "camera", "after", "before", "exclude"];
const SWITCHES = ["group", "good", "all"];
const OLD_SWITCHES = { sure: "good" }; // in saved links
const SORTED = { relevance: "", date: "date" };

export class Query {
  constructor(dates, pickers) {
    this.dates = dates;
    this.pickers = pickers; // of folder, place and camera
    this.like = null; // {id, thumbnail}
    this.image = null; // {blob, url}; the server knows its embedding as queryId
    this.queryId = null;
    this.collection = null; // of a server with several; null for the first one
    this.grades = null; // the relevance of each grade; without it, results have none, and there is no cut-off
    this.searchesWords = false; // whether the server knows the filters name, place and camera
  }

  // Words to find and to exclude, and filters: those of the box and those of the fields.
  parts() {
    const excluded = byId("exclude").value.split(",").map((text) => text.trim()).filter(Boolean);
    const typed = parse(byId("words").value);
    return { wanted: typed.wanted, excluded: [...excluded, ...typed.excluded], filters: typed.filters };
  }

  get isEmpty() {
    return !(this.parts().wanted || this.like || this.image);
  }

  // What is typed replaces what is chosen.
  filters() {
    const found = new Map();
    if (type()) found.set("type", type());
    for (const { name, value } of this.pickers) if (value) found.set(name, value);
    for (const [name, value] of this.dates.parameters()) found.set(name, value);
    for (const { name, sent } of this.parts().filters) if (sent !== null) found.set(name, sent);
    if (!this.searchesWords) for (const name of ["name", "place", "camera"]) found.delete(name);
    return [...found];
  }

  parameters(queryId = this.queryId) {
    const found = this.image && queryId ? [["query", queryId]] : this.#texts();
    if (this.like) found.push(["like", this.like.id]);
    if (byId("group").checked) found.push(["group", "true"]);
    const cut = this.#cutOff();
    if (cut !== null) found.push(["min_relevance", cut]);
    if (sorted()) found.push(["sort", sorted()]);
    return [...found, ...this.filters()];
  }

  // An image, and text beside it, is uploaded once; later requests refer to it by its query id.
  form() {
    const form = new FormData();
    form.append("image", this.image.blob, "image");
    for (const [name, value] of this.parameters(null)) form.append(name, value);
    return form;
  }

  toUrl() {
    const found = this.collection ? [["collection", this.collection]] : [];
    const words = byId("words").value.trim();
    if (words) found.push(["q", words]);
    if (this.like) found.push(["like", this.like.id]);
    if (type()) found.push(["type", type()]);
    for (const name of FIELDS) if (byId(name).value) found.push([name, byId(name).value]);
    for (const name of SWITCHES) if (byId(name).checked) found.push([name, "1"]);
    if (sorted()) found.push(["sort", sorted()]);
    return new URLSearchParams(found).toString();
  }

  fromUrl(search) {
    const given = new URLSearchParams(search);
    const like = /^[1-9]\d{0,14}$/.test(given.get("like") ?? "") ? given.get("like") : null;
    this.collection = given.get("collection");
    byId("words").value = given.get("q") ?? "";
    this.setImage(null);
    this.setLike(like ? { id: like, thumbnail: `${base()}items/${like}/thumbnail` } : null);
    setType(["image", "video"].includes(given.get("type")) ? given.get("type") : "");
    for (const name of FIELDS) byId(name).value = given.get(name) ?? "";
    for (const name of SWITCHES) byId(name).checked = given.has(name);
    for (const [old, name] of Object.entries(OLD_SWITCHES)) if (given.has(old)) byId(name).checked = true;
    byId("sort").value = given.get("sort") in SORTED ? given.get("sort") : "relevance";
    this.show();
  }

  clear() {
    this.fromUrl("");
  }

  // Whether results like these may be hidden. Items have no relevance to other items, so there none are.
  hides(results) {
    return this.#cutOff() !== null && results.some(({ relevance }) => (relevance ?? null) !== null);
  }

  // Returns whether the results change.
  setGrades(grades) {
    const before = this.#cutOff();
    this.grades = grades;
    byId("good").closest(".pill").hidden = grades === null;
    return this.#cutOff() !== before;
  }

  // The active filters by name, in the order in which they are offered to be dropped.
  get active() {
    const named = new Map(this.filters());
    if (this.grades && byId("good").checked) named.set("relevance", "good");
    return named;
  }

  // Removes a condition: the name of a filter, "exclude", or "relevance" for the cut-off.
  drop(name) {
    if (name === "relevance") {
      const strict = byId("good").checked;
      byId("good").checked = false;
      byId("all").checked = !strict;
    } else if (name === "type") setType("");
    else if (FIELDS.includes(name)) byId(name).value = "";
    for (;;) {
      const typed = this.parts().filters.find((each) => each.name === name);
      if (!typed) break;
      byId("words").value = without(byId("words").value, typed);
    }
  }

  setLike(like) {
    this.like = like;
    if (like) this.setImage(null);
  }

  setImage(blob) {
    if (this.image) URL.revokeObjectURL(this.image.url);
    this.image = blob ? { blob, url: URL.createObjectURL(blob) } : null;
    this.queryId = null;
    if (blob) this.like = null;
  }

  // Adds a filter to the box, in place of one with the same name.
  type(name, value) {
    this.drop(name);
    byId("words").value = `${byId("words").value} ${written(name, value)}`.trim();
  }

  // A chip for an image or item in the query and for each typed filter, and a mark on every active field.
  show() {
    const source = this.like?.thumbnail ?? this.image?.url;
    const drawn = byId("chips").querySelector("img")?.getAttribute("src");
    const chips = source ? [imageChip(this.like ? "similar to this" : "this image", source)] : [];
    if (source !== drawn) byId("chips").replaceChildren(...chips);
    const { filters } = this.parts();
    byId("typed").replaceChildren(...filters.filter(({ value }) => value).map(typedChip));
    byId("typed").hidden = !byId("typed").childElementCount;
    mark("exclude", Boolean(byId("exclude").value));
    for (const name of ["group", "good"]) mark(name, byId(name).checked);
    for (const picker of this.pickers) picker.show();
    this.dates.show();
  }

  #texts() {
    const { wanted, excluded } = this.parts();
    return [...(wanted ? [["q", wanted]] : []), ...excluded.map((text) => ["not", text])];
  }

  #cutOff() {
    if (this.grades === null) return null;
    if (byId("good").checked) return this.grades.good;
    return byId("all").checked ? null : this.grades.weak;
  }
}

const type = () => document.querySelector('input[name="type"]:checked').value;
const sorted = () => SORTED[byId("sort").value];
const mark = (name, set) => byId(name).closest(".pill").classList.toggle("set", set);

function setType(kind) {
  document.querySelector(`input[name="type"][value="${kind}"]`).checked = true;
}

function imageChip(text, source) {
  const image = element("img", { src: source, alt: "" });
  const label = `Remove "${text}" from the search`;
  return element("button", { className: "chip", type: "button", "aria-label": label, title: "Remove" }, image, text);
}

function typedChip({ name, value, problem }) {
  const text = problem ? `${name}: ${value} (expected ${problem})` : `${name}: ${value}`;
  const label = `Remove the filter ${text}`;
  const className = problem ? "chip bad" : "chip";
  return element("button", { className, type: "button", "data-name": name, "aria-label": label, title: "Remove", text });
}
