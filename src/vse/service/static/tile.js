// One result in the grid: its image, what is known about the match in a word, and a box to select it.

import { clock, counted, day, element, icon } from "./dom.js";

// Aspect ratios of tiles: a narrower or wider image, alone in its row, would fill the screen.
const NARROWEST = 0.75;
const WIDEST = 2;
const SIZES = [320, 640]; // of thumbnails, in pixels of the longer side
const FIRST = 24; // tiles that are loaded before they come into view
const MISSING = "File missing";
const UNSHOWN = "Cannot be shown";
const LEVELS = { strong: 3, good: 2, weak: 1 };

export function tile(result, index, offset) {
  const own = result.width && result.height ? result.width / result.height : 1.5;
  const ratio = Math.min(WIDEST, Math.max(NARROWEST, own));
  const button = element(
    "button",
    { type: "button", "data-index": index, tabindex: -1, "aria-label": label(result, index) },
    result.missing ? placeholder(MISSING, result.name) : image(result, ratio, offset),
    badges(result),
    element("span", { className: "name", "aria-hidden": "true", text: result.name }),
    match(result, index),
  );
  const box = element("input", { type: "checkbox", tabindex: -1, "aria-label": `Select ${result.name}` });
  const check = element("label", { className: "check" }, box, element("span", {}, icon("check")));
  const made = element("li", { className: result.missing ? "tile missing" : "tile", "data-id": result.id }, button, check);
  made.style.setProperty("--ratio", ratio.toFixed(4));
  return made;
}

// Called when the image of a tile could not be loaded.
export function markBroken(img) {
  const shown = img.closest(".tile");
  shown.classList.add("broken");
  img.replaceWith(placeholder(UNSHOWN, shown.querySelector(".name").textContent));
}

export function placeholder(text, name) {
  const shown = element("span", { className: "file", text: name });
  return element("span", { className: "gone" }, icon("missing"), element("span", { text }), shown);
}

// The strength of a match in a word, or where the words were found if only they match; null without relevance.
export function strength(result) {
  if (!isGood(result) && result.matched?.length) return `in ${fieldName(result.matched[0])}`;
  return isGraded(result) ? (result.grade ?? "unlikely") : null;
}

export const isGraded = ({ relevance }) => (relevance ?? null) !== null;
const isGood = ({ grade }) => grade === "strong" || grade === "good";
// Whether a result belongs below the good ones.
export const isWeak = (result) => isGraded(result) && !isGood(result) && !result.matched?.length;

export const fieldName = (field) => ({ ocr: "its text", name: "its name", folder: "its folder" })[field] ?? field;
export const rank = (index) => `#${index + 1}`;
export const span = ({ start, end }) => ((start ?? null) === null ? "" : `${clock(start)} – ${clock(end)}`);
export const duplicates = ({ group }) => counted(group.length, "duplicate");

function badges(result) {
  const made = element("span", { className: "badges", "aria-hidden": "true" });
  const badge = (text) => made.append(element("span", { className: "badge", text }));
  if (result.kind === "video") badge(`▶ ${span(result)}`.trim());
  if (result.moments > 1) badge(counted(result.moments, "moment"));
  if (result.group.length) badge(`+${duplicates(result)}`);
  return made;
}

function match(result, index) {
  const text = strength(result);
  if (text === null) return result.score === null ? null : element("span", { className: "rank", "aria-hidden": "true", text: rank(index) });
  return element("span", { className: "match", "aria-hidden": "true" }, levels(result.grade), text);
}

// Three bars, as many of them filled as the match is strong.
export function levels(grade) {
  const bars = [1, 2, 3].map((level) => element("i", { className: level <= (LEVELS[grade] ?? 0) ? "on" : "" }));
  return element("span", { className: "levels" }, ...bars);
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

function label(result, index) {
  const parts = [result.name];
  if (result.missing) parts.push("file missing");
  if (result.kind === "video") parts.push("video");
  if (result.start !== null) parts.push(`from ${clock(result.start)} to ${clock(result.end)}`);
  if (result.moments > 1) parts.push(counted(result.moments, "moment"));
  if (isGraded(result) && (isGood(result) || !result.matched?.length)) parts.push(`${result.grade ?? "unlikely"} match`);
  else if (!isGraded(result) && result.score !== null) parts.push(`rank ${index + 1}`);
  if (result.matched?.length) parts.push(`words found in ${result.matched.map(fieldName).join(", ")}`);
  if (result.taken !== null) parts.push(day(result.taken));
  if (result.group.length) parts.push(duplicates(result));
  return parts.join(", ");
}
