// The results that were joined to one, as small pictures below it: each can be shown in its place.

import { get } from "./api.js";
import { byId, element } from "./dom.js";
import { loadAgain } from "./retry.js";

const MOST = 12;

export class Alike {
  constructor(choose) {
    this.place = byId("viewer-alike");
    this.choose = choose;
    this.result = null;
    this.place.addEventListener("error", ({ target }) => loadAgain(target, () => target.remove()), true);
  }

  async show(result) {
    this.result = result;
    this.place.replaceChildren();
    this.place.hidden = true;
    if (!result.group.length) return;
    const asked = result.group.slice(0, MOST).map((id) => get(`items/${id}`, [], { keep: true }));
    const answers = await Promise.allSettled(asked);
    if (this.result !== result) return;
    const known = answers.filter(({ status }) => status === "fulfilled").map(({ value }) => value);
    const others = known.map((item) => ({ ...item, score: null, confidence: null, group: [] }));
    const text = `${result.group.length} alike${others.length < result.group.length ? `, ${others.length} shown` : ""}`;
    const buttons = [result, ...others].map((one) => this.#button(one));
    this.place.append(element("p", { className: "small", text }), ...buttons);
    this.place.hidden = false;
  }

  #button(one) {
    const picture = element("img", { src: one.thumbnail, alt: "", draggable: "false" });
    const named = { title: one.name, "aria-label": `Show ${one.name}` };
    const about = { type: "button", ...named, "aria-pressed": String(one === this.result) };
    const button = element("button", about, picture);
    button.addEventListener("click", () => {
      for (const each of this.place.querySelectorAll("button")) each.setAttribute("aria-pressed", each === button);
      this.choose(one);
    });
    return button;
  }
}
