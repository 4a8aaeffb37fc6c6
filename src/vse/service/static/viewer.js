// The viewer: one result in full size, its details, how well it matches, and why.

import { get } from "./api.js";
import { Details } from "./details.js";
import { byId, closeOnOutsideClick, element, percent, scored } from "./dom.js";
import { Duplicates } from "./duplicates.js";
import { bars } from "./evidence.js";
import { FileActions } from "./files.js";
import { Media } from "./media.js";
import { Similar } from "./similar.js";
import { Slideshow } from "./slideshow.js";
import { fieldName, isGraded, levels, rank } from "./tile.js";
import { Zoom } from "./zoom.js";

const RELEVANCE = "Estimated probability that this fits the query.";
const RANKED = "The model has no calibrated relevance: results are ranked by their score.";
const COMPARED = "Results for an image are ranked by their score.";
const NO_RESPONSE = "The server is not responding.";
const AHEAD = 4; // results before the last one from which more are loaded
const LEGENDS = {
  image: "Red areas support the match, blue areas count against it.",
  video: "Red bars support the match, blue bars count against it. Click a bar to jump there.",
};

export class Viewer {
  // renew(query) repeats a query whose id has expired and returns whether it could; like(result) searches for similar
  // ones; search(text) and filter(name, value) start another query; more() loads further results; left() is called
  // when the user closes the viewer, closed(result) also when the page does.
  constructor({ renew, like, search, filter, more, left, closed }) {
    this.renew = renew;
    this.more = more;
    this.results = []; // the grid appends to them, and replaces them by others
    this.query = null; // the query that found them
    this.index = -1;
    this.result = null; // the one shown: results[index], or one that is similar to it
    this.aside = false; // whether it is a similar one
    this.why = false;
    this.grades = false; // whether the model has relevance, which only texts have
    this.explainsImages = false; // until the collection is loaded; videos have evidence with every model
    this.closedByPage = false; // not by the user
    const leave = (act) => (...given) => {
      this.close();
      act(...given);
    };
    this.dialog = byId("viewer");
    this.media = new Media();
    this.files = new FileActions();
    this.details = new Details({ search: leave(search), filter: leave(filter), found: (item) => this.#found(item) });
    this.duplicates = new Duplicates((result) => this.#show(result));
    this.similar = new Similar((result) => this.#showSimilar(result));
    this.slides = new Slideshow(this.dialog, () => this.step(1));
    this.zoom = new Zoom(byId("stage"), { swiped: (by) => this.step(by), closer: () => this.media.sharpen(this.result) });
    this.dialog.addEventListener("close", () => {
      if (this.dialog.open) return; // reopened: the event is delayed
      this.media.clear();
      this.similar.clear();
      this.slides.stop();
      closed(this.results[this.index]);
      if (!this.closedByPage) left();
    });
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
    this.dialog.addEventListener("cancel", (event) => {
      if (!this.slides.on) return;
      event.preventDefault(); // Escape ends the slideshow first
      this.slides.stop();
    });
    closeOnOutsideClick(this.dialog);
    byId("viewer-close").addEventListener("click", () => this.dialog.close());
    byId("viewer-previous").addEventListener("click", () => this.step(-1));
    byId("viewer-next").addEventListener("click", () => this.step(1));
    byId("viewer-why").addEventListener("click", () => this.#toggle());
    byId("viewer-like").addEventListener("click", () => leave(like)(this.result));
  }

  get isOpen() {
    return this.dialog.open;
  }

  // What the model and the server can do.
  offer({ evidence, grades, files }) {
    this.files.offer(files);
    this.grades = grades;
    this.media.originals = Boolean(files?.original);
    const changed = evidence !== this.explainsImages;
    this.explainsImages = evidence;
    if (!changed || !this.isOpen) return;
    byId("viewer-why").hidden = !this.#explainable;
    this.#explain();
  }

  open(results, index, query) {
    this.results = results;
    this.query = query;
    this.closedByPage = false;
    this.dialog.showModal(); // before anything is measured
    this.#go(index);
  }

  close() {
    this.closedByPage = true;
    this.dialog.close();
  }

  // Returns whether there was a result to step to.
  step(by) {
    const next = this.aside && by < 0 ? this.index : this.index + by; // back from a similar one to the result itself
    const exists = next >= 0 && next < this.results.length;
    if (exists) this.#go(next);
    if (by > 0 && next + AHEAD >= this.results.length) this.#loadMore();
    return exists;
  }

  async #loadMore() {
    const { results } = this;
    await this.more(results);
    if (this.isOpen && this.results === results) this.#place();
  }

  get #explainable() {
    const { kind, missing } = this.result;
    return Boolean(this.query.queryId) && !missing && (this.explainsImages || kind === "video");
  }

  #go(index) {
    this.index = index;
    this.aside = false;
    this.#show(this.results[index]);
    this.duplicates.show(this.results[index]);
  }

  // It was not found by the query, so its own score says nothing about that.
  #showSimilar(result) {
    this.aside = true;
    this.duplicates.show(result);
    this.#show({ ...result, score: null, confidence: null });
  }

  #show(result) {
    this.result = result;
    byId("viewer-name").textContent = result.name;
    this.#place();
    byId("viewer-why").hidden = !this.#explainable;
    this.#meter(result);
    this.zoom.use(this.media.show(result));
    this.files.show(result);
    this.details.show(result);
    this.similar.show(result);
    this.#explain();
    this.slides.shown();
    byId("facts").scrollTop = 0;
  }

  #place() {
    const count = this.results.length;
    byId("viewer-place").textContent = this.aside ? `Similar to ${this.index + 1}` : `${this.index + 1} of ${count}`;
    byId("viewer-previous").setAttribute("aria-label", this.aside ? "Back to the result" : "Previous result");
    // Not disabled: that would lose the focus, and with it the keyboard shortcuts of the dialog.
    byId("viewer-previous").setAttribute("aria-disabled", this.index === 0 && !this.aside);
    byId("viewer-next").setAttribute("aria-disabled", this.index === count - 1);
  }

  // The details are newer than the results: the file may have disappeared since, or come back.
  #found(item) {
    if (item.missing === undefined || Boolean(this.result.missing) === item.missing) return;
    this.result.missing = item.missing;
    this.zoom.use(this.media.show(this.result));
    this.files.show(this.result);
  }

  #meter(result) {
    const meter = byId("viewer-meter");
    meter.hidden = result.score === null;
    if (meter.hidden) return;
    const graded = isGraded(result);
    const head = graded
      ? [levels(result.grade), element("strong", { text: percent(result.relevance) }), `${result.grade ?? "unlikely"} match`]
      : [element("strong", { text: rank(this.index) })];
    const numbers = [`score ${scored(result.score)}`];
    if (result.confidence !== null) numbers.unshift(`confidence ${percent(result.confidence)}`);
    const bar = element("i");
    bar.style.setProperty("--part", result.relevance ?? 0);
    const matched = result.matched ?? [];
    meter.replaceChildren(
      element("p", {}, ...head),
      graded ? element("div", { className: "bar", "aria-hidden": "true" }, bar) : "",
      element("p", { className: "small", text: graded ? RELEVANCE : this.grades ? COMPARED : RANKED }),
      element("p", { className: "small numbers", text: numbers.join(" · ") }),
      matched.length ? element("p", { className: "small", text: `Words found in ${matched.map(fieldName).join(", ")}.` }) : "",
    );
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
    const inVideo = event.target.tagName === "VIDEO"; // which uses the arrow keys and the space bar itself
    const key = event.key.toLowerCase();
    const clicks = { m: "viewer-like", o: "file-open", d: "file-download", c: "file-copy" };
    if (!inVideo && this.zoom.key(key)) event.preventDefault();
    else if (key === "arrowleft" && !inVideo) this.step(-1);
    else if (key === "arrowright" && !inVideo) this.step(1);
    else if (key === "e" && this.#explainable) this.#toggle();
    else if (key === "s") this.slides.on ? this.slides.stop() : this.slides.start();
    else if (key === " " && this.slides.on && event.target.tagName !== "BUTTON") this.slides.togglePause();
    else if (key in clicks && !byId(clicks[key]).hidden) byId(clicks[key]).click();
    else return;
    event.preventDefault();
  }
}
