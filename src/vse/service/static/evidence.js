// Evidence for a match: cells of an image as a heatmap, frames of a video as bars.
// Colours and opacity are those of "vse search --evidence".

import { clock, element, scored } from "./dom.js";

const POSITIVE = [214, 40, 40];
const NEGATIVE = [29, 78, 216];
const MAX_OPACITY = 0.65;
const CELL = 16; // pixels per side of a cell
const OUTLINED = 3; // windows; more would hide each other

// Values are interpolated, not colours: between red and blue lies transparent, not purple.
export function heatmap({ grid: [rows, columns], cells, boxes = [], seen }) {
  const label = "Evidence: red areas support the match, blue areas count against it";
  const canvas = element("canvas", { width: columns * CELL, height: rows * CELL, role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const strongest = Math.max(...cells.flat().map(Math.abs)) || 1;
  for (let y = 0, at = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1, at += 4) {
      const value = interpolate(cells, (y + 0.5) / CELL - 0.5, (x + 0.5) / CELL - 0.5) / strongest;
      image.data.set([...(value > 0 ? POSITIVE : NEGATIVE), Math.round(255 * MAX_OPACITY * Math.abs(value))], at);
    }
  }
  context.putImageData(image, 0, 0);
  const made = element("div", { className: "evidence" }, canvas, ...outlines(boxes));
  place(made, seen);
  return made;
}

// The windows that contribute most, of a model that weighs windows.
function outlines(boxes) {
  const strongest = [...boxes].sort((a, b) => Math.abs(b.share) - Math.abs(a.share)).slice(0, OUTLINED);
  return strongest.map(({ left, top, right, bottom, share }) => {
    const outline = element("i", { className: share < 0 ? "window against" : "window for", title: scored(share) });
    place(outline, { left, top, width: right - left, height: bottom - top });
    return outline;
  });
}

function place(made, sides) {
  for (const side of ["left", "top", "width", "height"]) made.style.setProperty(side, `${100 * sides[side]}%`);
}

function interpolate(cells, row, column) {
  const [top, bottom, down] = neighbours(row, cells.length);
  const [left, right, along] = neighbours(column, cells[0].length);
  const mixed = (values) => values[left] * (1 - along) + values[right] * along;
  return mixed(cells[top]) * (1 - down) + mixed(cells[bottom]) * down;
}

function neighbours(at, count) {
  const held = Math.min(Math.max(at, 0), count - 1);
  const first = Math.floor(held);
  return [first, Math.min(first + 1, count - 1), held - first];
}

// Bars go up from a line for positive contributions and down for negative ones. Each button has the full height.
export function bars(frames, seek) {
  const highest = Math.max(0, ...frames.map((frame) => frame.share));
  const lowest = Math.min(0, ...frames.map((frame) => frame.share));
  const range = highest - lowest || 1;
  return frames.map(({ at, share }) => {
    const bar = element("i", { className: share < 0 ? "against" : "for" });
    bar.style.setProperty("--part", Math.abs(share) / range);
    bar.style.setProperty("--foot", (Math.min(share, 0) - lowest) / range);
    const label = `Jump to ${clock(at)}, which contributes ${scored(share)} to the score`;
    const attributes = { type: "button", title: `${clock(at)}: ${scored(share)}`, "aria-label": label };
    const button = element("button", attributes, bar);
    button.addEventListener("click", () => seek(at));
    return button;
  });
}
