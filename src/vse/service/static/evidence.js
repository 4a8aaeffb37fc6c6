// What speaks for a result: cells of a picture as a veil of colour, frames of a clip as bars.
// Colours and strength are those of "vse search --evidence".

import { clock, element, scored } from "./dom.js";

const FOR = [214, 40, 40];
const AGAINST = [29, 78, 216];
const STRONGEST = 0.65;
const FINE = 16; // pixels that are drawn for the side of a cell

// The values are made finer, not the colours: between red and blue lies nothing, not purple.
export function veil({ grid: [rows, columns], cells, seen }) {
  const label = "Evidence: red parts speak for the search, blue ones against it";
  const canvas = element("canvas", { width: columns * FINE, height: rows * FINE, role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const strongest = Math.max(...cells.flat().map(Math.abs)) || 1;
  for (let y = 0, at = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1, at += 4) {
      const value = between(cells, (y + 0.5) / FINE - 0.5, (x + 0.5) / FINE - 0.5) / strongest;
      image.data.set([...(value > 0 ? FOR : AGAINST), Math.round(255 * STRONGEST * Math.abs(value))], at);
    }
  }
  context.putImageData(image, 0, 0);
  for (const side of ["left", "top", "width", "height"]) canvas.style.setProperty(side, `${100 * seen[side]}%`);
  return canvas;
}

function between(cells, row, column) {
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

// Bars stand on a line: up speaks for the search, down against it. Each is as tall as the row, and so easy to press.
export function bars(frames, seek) {
  const highest = Math.max(0, ...frames.map((frame) => frame.share));
  const lowest = Math.min(0, ...frames.map((frame) => frame.share));
  const range = highest - lowest || 1;
  return frames.map(({ at, share }) => {
    const bar = element("i", { className: share < 0 ? "against" : "for" });
    bar.style.setProperty("--part", Math.abs(share) / range);
    bar.style.setProperty("--foot", (Math.min(share, 0) - lowest) / range);
    const label = `Go to ${clock(at)}, which adds ${scored(share)} to the score`;
    const about = { type: "button", title: `${clock(at)}: ${scored(share)}`, "aria-label": label };
    const button = element("button", about, bar);
    button.addEventListener("click", () => seek(at));
    return button;
  });
}
