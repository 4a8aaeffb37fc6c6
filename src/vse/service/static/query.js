// The query: the fields of the page as parameters of a request and of the page's URL.

import { byId, choose, element } from "./dom.js";

const FIELDS = ["folder", "after", "before", "exclude"];
const SWITCHES = ["group", "sure"];

// Confidence is the probability that exactly this item is meant, and good results share it. Below this, little is left.
export const UNLIKELY = 0.03;

export class Query {
  constructor(dates) {
    this.dates = dates;
    this.like = null; // {id, thumbnail}
    this.image = null; // {blob, url}; the server knows its embedding as queryId
    this.queryId = null;
    this.hasConfidence = true; // until the collection is loaded; without it, the switch for likely matches is hidden
  }

  // "beach -people" excludes people, as the field "Exclude" does.
  parts() {
    const excluded = byId("exclude").value.split(",").map((text) => text.trim()).filter(Boolean);
    const wanted = byId("words").value.replace(/(^|\s)-([^\s-]\S*)/g, (_, space, word) => {
      excluded.push(word);
      return space;
    });
    return { wanted: wanted.replace(/\s+/g, " ").trim(), excluded };
  }

  get isEmpty() {
    return !(this.parts().wanted || this.like || this.image);
  }

  filters() {
    const found = [];
    if (type()) found.push(["type", type()]);
    if (byId("folder").value) found.push(["folder", byId("folder").value]);
    return [...found, ...this.dates.parameters()];
  }

  parameters(queryId = this.queryId) {
    const found = this.image && queryId ? [["query", queryId]] : this.#texts();
    if (this.like) found.push(["like", this.like.id]);
    if (byId("group").checked) found.push(["group", "true"]);
    if (byId("sure").checked && this.hasConfidence) found.push(["min_confidence", UNLIKELY]);
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
    const found = [];
    const words = byId("words").value.trim();
    if (words) found.push(["q", words]);
    if (this.like) found.push(["like", this.like.id]);
    if (type()) found.push(["type", type()]);
    for (const name of FIELDS) if (byId(name).value) found.push([name, byId(name).value]);
    for (const name of SWITCHES) if (byId(name).checked) found.push([name, "1"]);
    return new URLSearchParams(found).toString();
  }

  fromUrl(search) {
    const given = new URLSearchParams(search);
    const like = /^[1-9]\d{0,14}$/.test(given.get("like") ?? "") ? given.get("like") : null;
    byId("words").value = given.get("q") ?? "";
    this.setImage(null);
    this.setLike(like ? { id: like, thumbnail: `api/v1/items/${like}/thumbnail` } : null);
    const kind = ["image", "video"].includes(given.get("type")) ? given.get("type") : "";
    document.querySelector(`input[name="type"][value="${kind}"]`).checked = true;
    choose(byId("folder"), given.get("folder") ?? "");
    for (const name of FIELDS.slice(1)) byId(name).value = given.get(name) ?? "";
    for (const name of SWITCHES) byId(name).checked = given.has(name);
    this.show();
  }

  // Returns whether the results change.
  setConfidence(exists) {
    const changed = exists !== this.hasConfidence && byId("sure").checked;
    this.hasConfidence = exists;
    byId("sure").closest(".pill").hidden = !exists;
    return changed;
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

  // A chip for an image or item in the query, and a mark on every active filter.
  show() {
    const source = this.like?.thumbnail ?? this.image?.url;
    const drawn = byId("chips").querySelector("img")?.getAttribute("src");
    const chips = source ? [chip(this.like ? "similar to this" : "this image", source)] : [];
    if (source !== drawn) byId("chips").replaceChildren(...chips);
    for (const name of ["folder", "exclude"]) mark(name, Boolean(byId(name).value));
    for (const name of SWITCHES) mark(name, byId(name).checked);
    this.dates.show();
  }

  #texts() {
    const { wanted, excluded } = this.parts();
    return [...(wanted ? [["q", wanted]] : []), ...excluded.map((text) => ["not", text])];
  }
}

const type = () => document.querySelector('input[name="type"]:checked').value;
const mark = (name, set) => byId(name).closest(".pill").classList.toggle("set", set);

function chip(text, source) {
  const image = element("img", { src: source, alt: "" });
  const label = `Remove "${text}" from the search`;
  return element("button", { className: "chip", type: "button", "aria-label": label, title: "Remove" }, image, text);
}
