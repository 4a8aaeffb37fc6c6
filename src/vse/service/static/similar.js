// Results similar to the one that is open, as small images below its details.

import { get } from "./api.js";
import { byId, element } from "./dom.js";
import { retryImage } from "./retry.js";

const COUNT = 9;
const DELAY = 300; // milliseconds, so that stepping through the results starts no searches

export class Similar {
  constructor(choose) {
    this.place = byId("viewer-similar");
    this.choose = choose;
    this.result = null;
    this.timer = 0;
    this.place.addEventListener("error", ({ target }) => retryImage(target, () => target.closest("button").remove()), true);
  }

  show(result) {
    this.result = result;
    this.place.hidden = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#load(result), DELAY);
  }

  clear() {
    clearTimeout(this.timer);
    this.result = null;
  }

  async #load(result) {
    let found;
    try {
      found = await get("search", [["like", result.id], ["k", COUNT + 1]], { cached: true });
    } catch {
      return; // the rest of the panel is complete without them
    }
    if (this.result !== result) return;
    const others = found.results.filter(({ id, missing }) => id !== result.id && !missing).slice(0, COUNT);
    byId("viewer-similar-list").replaceChildren(...others.map((one) => this.#button(one)));
    this.place.hidden = !others.length;
  }

  #button(one) {
    const image = element("img", { src: one.thumbnail, alt: "", draggable: "false" });
    const button = element("button", { type: "button", title: one.name, "aria-label": `Show ${one.name}` }, image);
    button.addEventListener("click", () => this.choose(one));
    return button;
  }
}
