// The near-duplicates that were grouped under a result, as small images: a click shows one in the viewer.

import { get } from "./api.js";
import { byId, element } from "./dom.js";
import { retryImage } from "./retry.js";

const LIMIT = 12;

export class Duplicates {
  constructor(choose) {
    this.place = byId("viewer-duplicates");
    this.choose = choose;
    this.result = null;
    this.place.addEventListener("error", ({ target }) => retryImage(target, () => target.remove()), true);
  }

  async show(result) {
    this.result = result;
    this.place.replaceChildren();
    this.place.hidden = true;
    const count = result.group.length;
    if (!count) return;
    const requests = result.group.slice(0, LIMIT).map((id) => get(`items/${id}`, [], { cached: true }));
    const settled = await Promise.allSettled(requests);
    if (this.result !== result) return;
    const items = settled.filter(({ status }) => status === "fulfilled").map(({ value }) => value);
    const others = items.map((item) => ({ ...item, score: null, confidence: null, group: [] }));
    const text = `${count} ${count === 1 ? "duplicate" : "duplicates"}${others.length < count ? `, ${others.length} shown` : ""}`;
    const buttons = [result, ...others].map((one) => this.#button(one));
    this.place.append(element("p", { className: "small", text }), ...buttons);
    this.place.hidden = false;
  }

  #button(one) {
    const image = element("img", { src: one.thumbnail, alt: "", draggable: "false" });
    const label = { title: one.name, "aria-label": `Show ${one.name}` };
    const attributes = { type: "button", ...label, "aria-pressed": String(one === this.result) };
    const button = element("button", attributes, image);
    button.addEventListener("click", () => {
      for (const each of this.place.querySelectorAll("button")) each.setAttribute("aria-pressed", each === button);
      this.choose(one);
    });
    return button;
  }
}
