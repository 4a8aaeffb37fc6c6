// The results as rows of tiles, with arrow key navigation.

import { byId, clock, day, element, percent, scored } from "./dom.js";
import { UNLIKELY } from "./query.js";
import { retryImage } from "./retry.js";

// Aspect ratios of tiles: a narrower or wider image, alone in its row, would fill the screen.
const NARROWEST = 0.75;
const WIDEST = 2;
const SIZES = [320, 640]; // of thumbnails, in pixels of the longer side
const FIRST = 24; // tiles that are loaded before they come into view

export class Grid {
  constructor(open) {
    this.list = byId("results");
    this.results = [];
    this.isEmpty = false; // whether a message is shown in place of results
    this.open = open;
    this.list.addEventListener("keydown", (event) => this.#move(event));
    this.list.addEventListener("click", (event) => {
      const tile = event.target.closest("[data-index]");
      if (tile) this.open(Number(tile.dataset.index));
    });
    // Errors of images do not bubble, so they are caught in the capture phase.
    const missing = (image) => image.closest(".tile").classList.add("broken");
    this.list.addEventListener("error", ({ target }) => retryImage(target, () => missing(target)), true);
  }

  show(results) {
    const focused = this.list.contains(document.activeElement);
    this.results = [];
    this.isEmpty = false;
    this.list.replaceChildren();
    this.append(results);
    if (focused) this.focus(0);
  }

  append(results) {
    const made = [];
    results.forEach((result, offset) => {
      const before = this.results.at(-1);
      if (startsUnlikely(before, result)) made.push(element("li", { className: "divider", text: "less likely" }));
      this.results.push(result);
      made.push(tile(result, this.results.length - 1, offset));
    });
    this.list.append(...made);
  }

  showMessage(title, text) {
    this.show([]);
    this.isEmpty = true;
    this.list.append(element("li", { className: "empty" }, element("h2", { text: title }), element("p", { text })));
  }

  focus(index) {
    (this.list.querySelector(`[data-index="${index}"]`) ?? this.list).focus();
  }

  // The result that was viewed last, or the first one if the results have changed.
  focusOn(result) {
    this.focus(Math.max(0, this.results.indexOf(result)));
  }

  #move(event) {
    const from = event.target.closest("[data-index]");
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
    for (const other of this.list.querySelectorAll("[data-index]")) {
      const there = other.getBoundingClientRect();
      const apart = down ? there.top - here.bottom : here.top - there.bottom;
      if (apart < -1) continue;
      const distance = apart * 10 + Math.abs(there.left + there.width / 2 - middle);
      if (best === null || distance < best.distance) best = { distance, index: Number(other.dataset.index) };
    }
    return best?.index ?? null;
  }
}

const unlikely = (result) => result.confidence !== null && result.confidence < UNLIKELY;
const startsUnlikely = (before, result) => before !== undefined && !unlikely(before) && unlikely(result);

function tile(result, index, offset) {
  const own = result.width && result.height ? result.width / result.height : 1.5;
  const ratio = Math.min(WIDEST, Math.max(NARROWEST, own));
  const badges = element("span", { className: "badges", "aria-hidden": "true" });
  const badge = (text) => badges.append(element("span", { className: "badge", text }));
  if (result.kind === "video") badge(`▶ ${span(result)}`.trim());
  if (result.group.length) badge(`+${duplicates(result)}`);
  const below = element("span", { className: "name", "aria-hidden": "true" }, element("span", { text: result.name }));
  if (result.score !== null) below.append(element("b", { text: scored(result.score), title: "score" }));
  const attributes = { type: "button", "data-index": index, "aria-label": label(result, index) };
  const button = element("button", attributes, image(result, ratio, offset), badges, below);
  if (result.confidence !== null) button.append(confidenceRing(result.confidence));
  else if (result.score !== null) button.append(rankBadge(index));
  const item = element("li", { className: "tile" }, button);
  item.style.setProperty("--ratio", ratio.toFixed(4));
  return item;
}

function image(result, ratio, offset) {
  const made = element("img", {
    src: result.thumbnail,
    alt: "",
    loading: offset < FIRST ? "eager" : "lazy",
    decoding: "async",
    draggable: "false", // or dragging a tile would start a search by image
  });
  const longer = Math.max(result.width, result.height);
  if (longer <= SIZES[0]) return made; // there is no larger one
  const wide = (size) => Math.max(1, Math.round(result.width * Math.min(1, size / longer)));
  made.sizes = `(max-width: 44rem) ${(ratio * 8).toFixed(1)}rem, ${(ratio * 16).toFixed(1)}rem`;
  made.srcset = SIZES.map((size) => `${result.thumbnail}&size=${size} ${wide(size)}w`).join(", ");
  return made;
}

function confidenceRing(confidence) {
  const ring = element("i");
  ring.style.setProperty("--part", confidence);
  return element("span", { className: "sure", "aria-hidden": "true" }, ring, percent(confidence));
}

const rankBadge = (index) => element("span", { className: "rank", "aria-hidden": "true", text: rank(index) });
const duplicates = ({ group }) => `${group.length} ${group.length === 1 ? "duplicate" : "duplicates"}`;
export const rank = (index) => `#${index + 1}`;
export const span = (result) => (result.start === null ? "" : `${clock(result.start)} – ${clock(result.end)}`);

function label(result, index) {
  const parts = [result.name];
  if (result.kind === "video") parts.push("video");
  if (result.start !== null) parts.push(`from ${clock(result.start)} to ${clock(result.end)}`);
  if (result.confidence !== null) parts.push(`${percent(result.confidence)} likely`);
  else if (result.score !== null) parts.push(`rank ${index + 1}`);
  if (result.score !== null) parts.push(`score ${scored(result.score)}`);
  if (result.taken !== null) parts.push(day(result.taken));
  if (result.group.length) parts.push(duplicates(result));
  return parts.join(", ");
}
