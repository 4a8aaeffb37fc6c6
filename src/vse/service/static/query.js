// The query: the fields of the page as parameters of a request and of the page's URL.

import { base } from "./api.js";
import { byId, element } from "./dom.js";
import { parse, without } from "./typed.js";

const FIELDS = ["folder", "place", "camera", "after", "before", "exclude"];
const SWITCHES = ["group", "good", "rerank", "all"];
const OLD_SWITCHES = { sure: "good" }; // in saved links
const WORD_FILTERS = ["name", "place", "camera", "words"]; // of a server that searches words
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
    this.reranks = false; // whether the server has a re-ranker; it compares images with text only
    this.searchesWords = null; // whether the server sorts by date, and filters by words; null until it is known
  }

  // The text to find, the texts to exclude, and the tokens of the box that are neither.
  parts() {
    const { wanted, tokens } = parse(byId("words").value);
    const chosen = byId("exclude").value.split(",").map((text) => text.trim()).filter(Boolean);
    const typed = tokens.filter(({ name, sent }) => name === "exclude" && sent !== null).map(({ sent }) => sent);
    return { wanted, excluded: [...chosen, ...typed], tokens };
  }

  get isEmpty() {
    return !(this.parts().wanted || this.like || this.image);
  }

  // What is typed replaces what is chosen. Quoted words may be given several times.
  filters() {
    const found = new Map();
    if (type()) found.set("type", type());
    for (const { name, value } of this.pickers) if (value) found.set(name, value);
    for (const [name, value] of this.dates.parameters()) found.set(name, value);
    const typed = this.parts().tokens.filter(({ name, sent }) => name !== "exclude" && sent !== null);
    for (const { name, sent } of typed) if (name !== "words") found.set(name, sent);
    const words = typed.filter(({ name }) => name === "words").map(({ sent }) => ["words", sent]);
    return [...found, ...words].filter(([name]) => this.searchesWords || !WORD_FILTERS.includes(name));
  }

  parameters(queryId = this.queryId) {
    const found = this.image && queryId ? [["query", queryId]] : this.#texts();
    if (this.like) found.push(["like", this.like.id]);
    if (byId("group").checked) found.push(["group", "true"]);
    const cut = this.#cutOff();
    if (cut !== null) found.push(["min_relevance", cut]);
    if (sorted() && this.searchesWords) found.push(["sort", sorted()]);
    else if (this.reranks && byId("rerank").checked && this.parts().wanted) found.push(["rerank", "true"]);
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

  // What the collection offers. Returns whether that changes the request.
  offer({ grades = null, places, model }) {
    const request = () => JSON.stringify(this.isEmpty ? this.filters() : this.parameters());
    const before = request();
    this.grades = grades;
    this.reranks = model?.capabilities?.rerank ?? false;
    byId("rerank").closest(".pill").hidden = !this.reranks;
    this.searchesWords = places !== undefined;
    byId("good").closest(".pill").hidden = grades === null;
    byId("sort").disabled = !this.searchesWords;
    this.show();
    return request() !== before;
  }

  // The active filters by name, in the order in which they are offered to be dropped.
  get active() {
    const named = new Map(this.filters());
    if (this.grades && byId("good").checked) named.set("relevance", "good");
    return named;
  }

  // Removes a condition: the name of a filter, "exclude", "words" for the quotes, or "relevance" for the cut-off.
  drop(name) {
    if (name === "relevance") {
      const strict = byId("good").checked;
      byId("good").checked = false;
      byId("all").checked = !strict;
    } else if (name === "type") setType("");
    else if (FIELDS.includes(name)) byId(name).value = "";
    for (;;) {
      const typed = this.parts().tokens.find((each) => each.name === name);
      if (!typed) break;
      this.#remove(typed);
    }
  }

  // Removes the token of the box that begins there.
  dropAt(at) {
    const typed = this.parts().tokens.find((each) => each.at === at);
    if (typed) this.#remove(typed);
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

  // A chip for an image or item in the query and for each typed filter, and a mark on every active field.
  show() {
    const source = this.like?.thumbnail ?? this.image?.url;
    const drawn = byId("chips").querySelector("img")?.getAttribute("src");
    const chips = source ? [imageChip(this.like ? "similar to this" : "this image", source)] : [];
    if (source !== drawn) byId("chips").replaceChildren(...chips);
    const typed = this.parts().tokens.filter(({ value }) => value).map((token) => this.#known(token));
    byId("typed").replaceChildren(...typed.map(typedChip));
    byId("typed").hidden = !byId("typed").childElementCount;
    mark("exclude", Boolean(byId("exclude").value));
    for (const name of ["group", "good"]) mark(name, byId(name).checked);
    for (const picker of this.pickers) picker.show();
    this.dates.show();
  }

  // Quoted words stay as words, without their quotes.
  #remove(token) {
    byId("words").value = without(byId("words").value, token, token.name === "words" ? token.value : "");
  }

  #known(token) {
    const unknown = this.searchesWords === false && WORD_FILTERS.includes(token.name);
    return unknown ? { ...token, problem: "this server does not search words" } : token;
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

const TYPED = { exclude: (value) => `not: ${value}`, words: (value) => `“${value}”` };

function typedChip({ name, value, at, problem }) {
  const said = TYPED[name]?.(value) ?? `${name}: ${value}`;
  const text = problem ? `${said} (${problem})` : said;
  const label = `Remove ${text}`;
  const className = problem ? "chip bad" : "chip";
  return element("button", { className, type: "button", "data-at": at, "aria-label": label, title: "Remove", text });
}
