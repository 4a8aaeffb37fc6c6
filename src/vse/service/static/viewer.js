// One result, large: what it is, how sure the match is, and why.

import { Alike } from "./alike.js";
import { get } from "./api.js";
import { byId, bytes, clock, closesBeside, day, element, pairs, percent, scored } from "./dom.js";
import { bars } from "./evidence.js";
import { Stage } from "./stage.js";
import { span } from "./wall.js";

const SHARED = "The chance that this very one is meant. Results that fit equally well share it.";
const LEGENDS = {
  image: "Red parts speak for the search, blue ones against it.",
  video: "Red bars speak for the search, blue ones against it. Press one to go there.",
};

export class Viewer {
  // renew(asked) asks a question again that the server has forgotten, and says whether it could; left() is called when
  // somebody has closed the viewer, closed(result) also when the page has.
  constructor({ renew, like, left, closed }) {
    this.renew = renew;
    this.results = []; // kept, as those of the wall may change beneath
    this.asked = null; // the question that found them
    this.index = -1;
    this.result = null; // on the stage: the one at the index, or one that looks like it
    this.why = false;
    this.shut = false; // by the page and not by a person
    this.stage = new Stage();
    this.alike = new Alike((result) => this.#show(result));
    this.dialog = byId("viewer");
    this.dialog.addEventListener("close", () => {
      if (this.dialog.open) return; // again, since the event comes a moment later
      this.stage.clear();
      closed(this.results[this.index]);
      if (!this.shut) left();
    });
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
    closesBeside(this.dialog);
    byId("viewer-close").addEventListener("click", () => this.dialog.close());
    byId("viewer-previous").addEventListener("click", () => this.step(-1));
    byId("viewer-next").addEventListener("click", () => this.step(1));
    byId("viewer-why").addEventListener("click", () => this.#toggle());
    byId("viewer-like").addEventListener("click", () => {
      this.close();
      like(this.result);
    });
  }

  get isOpen() {
    return this.dialog.open;
  }

  open(results, index, asked) {
    this.results = results;
    this.asked = asked;
    this.shut = false;
    this.#go(index);
    this.dialog.showModal();
  }

  close() {
    this.shut = true;
    this.dialog.close();
  }

  step(by) {
    const next = this.index + by;
    if (next >= 0 && next < this.results.length) this.#go(next);
  }

  #go(index) {
    this.index = index;
    this.#show(this.results[index]);
    this.alike.show(this.results[index]);
  }

  #show(result) {
    this.result = result;
    const count = this.results.length;
    byId("viewer-name").textContent = result.name;
    byId("viewer-where").textContent = result.folder;
    byId("viewer-place").textContent = `${this.index + 1} of ${count}`;
    // A button that is disabled loses the focus, and with it the keys of the dialog.
    byId("viewer-previous").setAttribute("aria-disabled", this.index === 0);
    byId("viewer-next").setAttribute("aria-disabled", this.index === count - 1);
    byId("viewer-why").hidden = !this.asked.queryId;
    byId("viewer-captions").replaceChildren();
    pairs(byId("viewer-facts"), []);
    this.#meter(result);
    this.stage.show(result);
    this.#details(result);
    this.#explain();
  }

  #meter(result) {
    const meter = byId("viewer-meter");
    meter.hidden = result.confidence === null;
    if (meter.hidden) return;
    const bar = element("i");
    bar.style.setProperty("--part", result.confidence);
    const likely = element("strong", { text: percent(result.confidence) });
    const score = element("span", { text: `score ${scored(result.score)}` });
    meter.replaceChildren(
      element("p", {}, likely, " likely", score),
      element("div", { className: "bar", "aria-hidden": "true" }, bar),
      element("p", { className: "small", text: SHARED }),
    );
  }

  async #details(result) {
    let rows;
    let captions = [];
    try {
      const item = await get(`items/${result.id}`, [], { keep: true });
      captions = item.captions;
      rows = [
        ["Taken", item.taken === null ? "" : day(item.taken)],
        ["Place", item.latitude === null ? "" : `${item.latitude.toFixed(4)}, ${item.longitude.toFixed(4)}`],
        ["Size", `${item.width} × ${item.height}, ${bytes(item.size)}`],
        ["Length", item.duration === null ? "" : clock(item.duration)],
        ["Moment", span(result)],
      ];
    } catch (problem) {
      rows = [["Problem", problem.status === undefined ? "the server does not answer" : problem.message]];
    }
    if (this.result !== result) return;
    pairs(byId("viewer-facts"), rows);
    byId("viewer-captions").replaceChildren(...captions.map((text) => element("blockquote", { text })));
  }

  #toggle() {
    this.why = !this.why;
    this.#explain();
  }

  // Takes the evidence away, and draws that of the present result if it is wanted.
  async #explain() {
    const result = this.result;
    byId("viewer-why").setAttribute("aria-pressed", this.why);
    byId("viewer-timeline").hidden = byId("viewer-legend").hidden = true;
    this.stage.uncover();
    if (!this.why || !this.asked.queryId) return;
    let found = null;
    let problem = null;
    try {
      found = await this.#evidence(result);
    } catch (error) {
      problem = error.status === undefined ? "The server does not answer." : error.message;
    }
    if (this.result !== result || !this.why || !this.dialog.open) return;
    byId("viewer-legend").textContent = problem ?? LEGENDS[found.kind];
    byId("viewer-legend").classList.toggle("colours", found !== null);
    byId("viewer-legend").hidden = false;
    if (found?.kind === "image") this.stage.cover(found);
    else if (found) this.#timeline(found.frames);
  }

  async #evidence(result) {
    const asked = this.asked;
    const ask = () => get(`items/${result.id}/evidence`, [["query", asked.queryId]], { keep: true });
    try {
      return await ask();
    } catch (problem) {
      if (problem.status !== 404 || !(await this.renew(asked))) throw problem;
      return ask();
    }
  }

  #timeline(frames) {
    byId("viewer-timeline").replaceChildren(...bars(frames, (at) => this.stage.seek(at)));
    byId("viewer-timeline").hidden = false;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inVideo = event.target.tagName === "VIDEO"; // which has arrows of its own
    const key = event.key.toLowerCase();
    if (key === "arrowleft" && !inVideo) this.step(-1);
    else if (key === "arrowright" && !inVideo) this.step(1);
    else if (key === "e" && this.asked.queryId) this.#toggle();
    else if (key === "m") byId("viewer-like").click();
    else return;
    event.preventDefault();
  }
}
