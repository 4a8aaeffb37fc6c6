// What is asked for: the fields of the page, and the parameters of a request and of the page's address.

import { byId, choose, element } from "./dom.js";

const FIELDS = ["folder", "after", "before", "exclude"];
const SWITCHES = ["group", "sure"];

// Confidence is the chance that this very item is meant, and good results share it. Below this, little is left.
export const UNLIKELY = 0.03;

export class Question {
  constructor(dates) {
    this.dates = dates;
    this.like = null; // {id, thumbnail}
    this.picture = null; // {blob, url}; its vector is known to the server as queryId
    this.queryId = null;
  }

  // "beach -people" leaves people out, as "Leave out" does.
  parts() {
    const unwanted = byId("exclude").value.split(",").map((text) => text.trim()).filter(Boolean);
    const wanted = byId("words").value.replace(/(^|\s)-([^\s-]\S*)/g, (_, space, word) => {
      unwanted.push(word);
      return space;
    });
    return { wanted: wanted.replace(/\s+/g, " ").trim(), unwanted };
  }

  get asks() {
    return Boolean(this.parts().wanted || this.like || this.picture);
  }

  filters() {
    const found = [];
    if (type()) found.push(["type", type()]);
    if (byId("folder").value) found.push(["folder", byId("folder").value]);
    return [...found, ...this.dates.parameters()];
  }

  parameters(queryId = this.queryId) {
    const found = this.picture && queryId ? [["query", queryId]] : this.#texts();
    if (this.like) found.push(["like", this.like.id]);
    if (byId("group").checked) found.push(["group", "true"]);
    if (byId("sure").checked) found.push(["min_confidence", UNLIKELY]);
    return [...found, ...this.filters()];
  }

  // A picture, with words beside it if there are any, is sent once; afterwards its query id stands for it.
  form() {
    const form = new FormData();
    form.append("image", this.picture.blob, "picture");
    for (const [name, value] of this.parameters(null)) form.append(name, value);
    return form;
  }

  toAddress() {
    const found = [];
    const words = byId("words").value.trim();
    if (words) found.push(["q", words]);
    if (this.like) found.push(["like", this.like.id]);
    if (type()) found.push(["type", type()]);
    for (const name of FIELDS) if (byId(name).value) found.push([name, byId(name).value]);
    for (const name of SWITCHES) if (byId(name).checked) found.push([name, "1"]);
    return new URLSearchParams(found).toString();
  }

  fromAddress(search) {
    const given = new URLSearchParams(search);
    const like = /^[1-9]\d{0,14}$/.test(given.get("like") ?? "") ? given.get("like") : null;
    byId("words").value = given.get("q") ?? "";
    this.setPicture(null);
    this.setLike(like ? { id: like, thumbnail: `api/v1/items/${like}/thumbnail` } : null);
    const kind = ["image", "video"].includes(given.get("type")) ? given.get("type") : "";
    document.querySelector(`input[name="type"][value="${kind}"]`).checked = true;
    choose(byId("folder"), given.get("folder") ?? "");
    for (const name of FIELDS.slice(1)) byId(name).value = given.get(name) ?? "";
    for (const name of SWITCHES) byId(name).checked = given.has(name);
    this.show();
  }

  setLike(like) {
    this.like = like;
    if (like) this.setPicture(null);
  }

  setPicture(blob) {
    if (this.picture) URL.revokeObjectURL(this.picture.url);
    this.picture = blob ? { blob, url: URL.createObjectURL(blob) } : null;
    this.queryId = null;
    if (blob) this.like = null;
  }

  // Chips for what is not words, and a mark on every filter that is set.
  show() {
    const source = this.like?.thumbnail ?? this.picture?.url;
    const drawn = byId("chips").querySelector("img")?.getAttribute("src");
    const chips = source ? [chip(this.like ? "like this" : "this picture", source)] : [];
    if (source !== drawn) byId("chips").replaceChildren(...chips);
    for (const name of ["folder", "exclude"]) mark(name, Boolean(byId(name).value));
    for (const name of SWITCHES) mark(name, byId(name).checked);
    this.dates.show();
  }

  #texts() {
    const { wanted, unwanted } = this.parts();
    return [...(wanted ? [["q", wanted]] : []), ...unwanted.map((text) => ["not", text])];
  }
}

const type = () => document.querySelector('input[name="type"]:checked').value;
const mark = (name, set) => byId(name).closest(".pill").classList.toggle("set", set);

function chip(text, picture) {
  const image = element("img", { src: picture, alt: "" });
  const label = `Remove "${text}" from the search`;
  return element("button", { className: "chip", type: "button", "aria-label": label, title: "Remove" }, image, text);
}
