// The viewer: one result in full size, its details, its confidence, and why it matches.

import { get } from "./api.js";
import { byId, bytes, clock, closeOnOutsideClick, day, element, pairs, percent, scored } from "./dom.js";
import { Duplicates } from "./duplicates.js";
import { bars } from "./evidence.js";
import { rank, span } from "./grid.js";
import { Media } from "./media.js";

const CONFIDENCE = "Estimated probability that this is the one you mean. Equally good matches share it.";
const RANKED = "The model has no calibrated confidence: results are ranked by their score.";
const NO_RESPONSE = "The server is not responding.";
const LEGENDS = {
  image: "Red areas support the match, blue areas count against it.",
  video: "Red bars support the match, blue bars count against it. Click a bar to jump there.",
};

export class Viewer {
  // renew(query) repeats a query whose id has expired and returns whether it could; like(result) searches for similar
  // ones; left() is called when the user closes the viewer, closed(result) also when the page does.
  constructor({ renew, like, left, closed }) {
    this.renew = renew;
    this.results = []; // a copy: the grid may change below
    this.query = null; // the query that found them
    this.index = -1;
    this.result = null; // the one shown: results[index], or a duplicate of it
    this.why = false;
    this.explainsImages = false; // until the collection is loaded; videos have evidence with every model
    this.closedByPage = false; // not by the user
    this.media = new Media();
    this.duplicates = new Duplicates((result) => this.#show(result));
    this.dialog = byId("viewer");
    this.dialog.addEventListener("close", () => {
      if (this.dialog.open) return; // reopened: the event is delayed
      this.media.clear();
      closed(this.results[this.index]);
      if (!this.closedByPage) left();
    });
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
    closeOnOutsideClick(this.dialog);
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

  setEvidence(ofImages) {
    const changed = ofImages !== this.explainsImages;
    this.explainsImages = ofImages;
    if (!changed || !this.isOpen) return;
    byId("viewer-why").hidden = !this.#explainable;
    this.#explain();
  }

  open(results, index, query) {
    this.results = results;
    this.query = query;
    this.closedByPage = false;
    this.#go(index);
    this.dialog.showModal();
  }

  close() {
    this.closedByPage = true;
    this.dialog.close();
  }

  step(by) {
    const next = this.index + by;
    if (next >= 0 && next < this.results.length) this.#go(next);
  }

  get #explainable() {
    return Boolean(this.query.queryId) && (this.explainsImages || this.result.kind === "video");
  }

  #go(index) {
    this.index = index;
    this.#show(this.results[index]);
    this.duplicates.show(this.results[index]);
  }

  #show(result) {
    this.result = result;
    const count = this.results.length;
    byId("viewer-name").textContent = result.name;
    byId("viewer-where").textContent = result.folder;
    byId("viewer-place").textContent = `${this.index + 1} of ${count}`;
    // Not disabled: that would lose the focus, and with it the keyboard shortcuts of the dialog.
    byId("viewer-previous").setAttribute("aria-disabled", this.index === 0);
    byId("viewer-next").setAttribute("aria-disabled", this.index === count - 1);
    byId("viewer-why").hidden = !this.#explainable;
    byId("viewer-captions").replaceChildren();
    pairs(byId("viewer-facts"), []);
    this.#meter(result);
    this.media.show(result);
    this.#details(result);
    this.#explain();
  }

  #meter(result) {
    const meter = byId("viewer-meter");
    meter.hidden = result.score === null;
    if (meter.hidden) return;
    const score = element("span", { text: `score ${scored(result.score)}` });
    if (result.confidence === null) {
      const place = element("strong", { text: rank(this.index) });
      meter.replaceChildren(element("p", {}, place, score), element("p", { className: "small", text: RANKED }));
      return;
    }
    const bar = element("i");
    bar.style.setProperty("--part", result.confidence);
    const likely = element("strong", { text: percent(result.confidence) });
    meter.replaceChildren(
      element("p", {}, likely, " likely", score),
      element("div", { className: "bar", "aria-hidden": "true" }, bar),
      element("p", { className: "small", text: CONFIDENCE }),
    );
  }

  async #details(result) {
    let rows;
    let captions = [];
    try {
      const item = await get(`items/${result.id}`, [], { cached: true });
      captions = item.captions;
      rows = [
        ["Taken", item.taken === null ? "" : day(item.taken)],
        ["Location", item.latitude === null ? "" : `${item.latitude.toFixed(4)}, ${item.longitude.toFixed(4)}`],
        ["Size", `${item.width} × ${item.height}, ${bytes(item.size)}`],
        ["Duration", item.duration === null ? "" : clock(item.duration)],
        ["Moment", span(result)],
      ];
    } catch (problem) {
      rows = [["Error", problem.status === undefined ? NO_RESPONSE : problem.message]];
    }
    if (this.result !== result) return;
    pairs(byId("viewer-facts"), rows);
    byId("viewer-captions").replaceChildren(...captions.map((text) => element("blockquote", { text })));
  }

  #toggle() {
    this.why = !this.why;
    this.#explain();
  }

  // Removes the evidence, and shows that of the current result if it is switched on.
  async #explain() {
    const result = this.result;
    byId("viewer-why").setAttribute("aria-pressed", this.why);
    byId("viewer-timeline").hidden = byId("viewer-legend").hidden = true;
    this.media.hideEvidence();
    if (!this.why || !this.#explainable) return;
    let found = null;
    let problem = null;
    try {
      found = await this.#evidence(result);
    } catch (error) {
      problem = error.status === undefined ? NO_RESPONSE : error.message;
    }
    if (this.result !== result || !this.why || !this.dialog.open) return;
    byId("viewer-legend").textContent = problem ?? LEGENDS[found.kind];
    byId("viewer-legend").classList.toggle("colours", found !== null);
    byId("viewer-legend").hidden = false;
    if (found?.kind === "image") this.media.showEvidence(found);
    else if (found) this.#timeline(found.frames);
  }

  async #evidence(result) {
    const query = this.query;
    const fetchEvidence = () => get(`items/${result.id}/evidence`, [["query", query.queryId]], { cached: true });
    try {
      return await fetchEvidence();
    } catch (problem) {
      if (problem.status !== 404 || !(await this.renew(query))) throw problem;
      return fetchEvidence();
    }
  }

  #timeline(frames) {
    byId("viewer-timeline").replaceChildren(...bars(frames, (at) => this.media.seek(at)));
    byId("viewer-timeline").hidden = false;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inVideo = event.target.tagName === "VIDEO"; // which uses the arrow keys itself
    const key = event.key.toLowerCase();
    if (key === "arrowleft" && !inVideo) this.step(-1);
    else if (key === "arrowright" && !inVideo) this.step(1);
    else if (key === "e" && this.#explainable) this.#toggle();
    else if (key === "m") byId("viewer-like").click();
    else return;
    event.preventDefault();
  }
}
