// The results as rows of tiles below headings, with arrow key navigation.

import { byId, element, month, year } from "./dom.js";
import { retryImage } from "./retry.js";
import { isGraded, isWeak, markBroken, tile } from "./tile.js";

const GOOD = "Good matches";
const BEST = "Best matches"; // some are weak, but words found what follows them
const WEAKER = "Weaker matches";
const FEWEST = 4; // files per month on average; with fewer, headings are years

export class Grid {
  constructor(open) {
    this.place = byId("results");
    this.results = [];
    this.dateOf = null; // the heading of a result by date; otherwise headings tell good matches from weaker ones
    this.isEmpty = false; // whether a message is shown in place of results
    this.heading = null; // of the last section
    this.current = 0; // the tile that Tab reaches
    this.open = open;
    this.place.addEventListener("keydown", (event) => this.#move(event));
    this.place.addEventListener("focusin", ({ target }) => this.#reach(target.closest(".tile")));
    this.place.addEventListener("click", (event) => {
      const button = event.target.closest("[data-index]");
      if (button && !event.defaultPrevented) this.open(Number(button.dataset.index));
    });
    // Errors of images do not bubble, so they are caught in the capture phase.
    this.place.addEventListener("error", ({ target }) => retryImage(target, () => markBroken(target)), true);
  }

  show(results, { byDate = false } = {}) {
    const focused = this.place.contains(document.activeElement);
    this.results = [];
    this.dateOf = byDate ? dated(results) : null;
    this.isEmpty = false;
    this.heading = null;
    this.place.replaceChildren();
    this.append(results);
    this.#reach(this.#tile(0));
    if (focused) this.focus(0);
  }

  append(results) {
    const headings = this.dateOf ? results.map(this.dateOf) : this.#strengths(results);
    results.forEach((result, offset) => {
      const list = this.#listFor(headings[offset]);
      this.results.push(result);
      list.append(tile(result, this.results.length - 1, offset));
    });
    this.place.dispatchEvent(new Event("tiles")); // the selection marks those that it holds
  }

  showMessage(...content) {
    this.show([]);
    this.isEmpty = true;
    this.place.append(element("div", { className: "empty" }, ...content));
  }

  focus(index) {
    (this.place.querySelector(`[data-index="${index}"]`) ?? this.place).focus();
  }

  // The result that was viewed last, or the first one if the results have changed.
  focusOn(result) {
    this.focus(Math.max(0, this.results.indexOf(result)));
  }

  // Words may find what the model thinks weak, so the weaker ones begin after the last good one of a page.
  #strengths(results) {
    if (!results.some(isGraded)) return results.map(() => null);
    const last = this.heading === WEAKER ? -1 : results.findLastIndex((result) => !isWeak(result));
    const above = this.heading ?? (results.slice(0, last).some(isWeak) ? BEST : GOOD);
    return results.map((_, at) => (at <= last ? above : WEAKER));
  }

  #listFor(heading) {
    if (heading !== this.heading || !this.place.querySelector(".grid")) {
      this.heading = heading;
      const id = `part-${this.place.childElementCount}`;
      const title = heading ? element("h2", { className: "heading", id, text: heading }) : null;
      const list = element("ul", { className: "grid", "aria-label": heading ?? "Results" });
      this.place.append(element("section", { className: "part", "aria-labelledby": heading ? id : null }, title, list));
    }
    return this.place.lastElementChild.querySelector(".grid");
  }

  #tile(index) {
    return this.place.querySelector(`[data-index="${index}"]`)?.closest(".tile") ?? null;
  }

  // One tile, and its box, can be reached with Tab, so that what follows the results can be reached too.
  #reach(to) {
    if (!to) return;
    for (const each of this.#tile(this.current)?.querySelectorAll("button, input") ?? []) each.tabIndex = -1;
    for (const each of to.querySelectorAll("button, input")) each.tabIndex = 0;
    this.current = Number(to.querySelector("[data-index]").dataset.index);
  }

  #move(event) {
    const from = event.target.closest(".tile")?.querySelector("[data-index]");
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number(from.dataset.index);
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -index, End: this.results.length - 1 - index };
    let target = event.key in steps ? index + steps[event.key] : null;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") target = this.#nearest(from, event.key === "ArrowDown");
    if (target === null || target < 0 || target >= this.results.length) {
      if (event.key === "ArrowUp") byId("words").focus(); // above the first row is the search box
      return;
    }
    event.preventDefault();
    this.focus(target);
  }

  // Rows hold different numbers of tiles: move to the nearest one in the next row.
  #nearest(from, down) {
    const here = from.getBoundingClientRect();
    const middle = here.left + here.width / 2;
    let best = null;
    for (const other of this.place.querySelectorAll("[data-index]")) {
      const there = other.getBoundingClientRect();
      const apart = down ? there.top - here.bottom : here.top - there.bottom;
      if (apart < -1) continue;
      const distance = apart * 10 + Math.abs(there.left + there.width / 2 - middle);
      if (best === null || distance < best.distance) best = { distance, index: Number(other.dataset.index) };
    }
    return best?.index ?? null;
  }
}

// A file without a date of capture is listed by the time of its last change.
const timeOf = ({ taken, modified }) => taken ?? modified ?? null;
const headed = (format) => (result) => (timeOf(result) === null ? "No date" : format(timeOf(result)));

// Headings by month, or by year where most months would have a row of their own with one or two files.
function dated(results) {
  const months = new Set(results.map(headed(month)));
  return headed(months.size > 1 && results.length < FEWEST * months.size ? year : month);
}
