// A chart of a learned pooling: the weight of each rank, from the largest value to the smallest.

import { drawing, element } from "./dom.js";

const TOWERS = { image: ["Images", "cells"], text: ["Captions", "words"] };
const MARGIN = 4; // of 100, so that lines at the top and bottom are not clipped

// Weights add up to about 1 for any set size. Multiplied by the size, average pooling is 1 everywhere.
export function figure({ tower, pooling, sizes, resembles, note }) {
  const [name, parts] = TOWERS[tower];
  const curves = sizes.map(({ weights }) => weights.map((weight) => weight * weights.length));
  if (!curves.length) {
    const text = `${name}, pooled by ${pooling}: ${note ?? "no curve"}.`;
    return element("figure", {}, element("figcaption", { text }));
  }
  const notes = [`${name}: weights of ${sizes.at(-1).size} ${parts}, largest value first`, similarity(resembles)];
  if (sizes.length > 1) notes.push(`fainter: ${listed(sizes.slice(0, -1).map(({ size }) => size))} ${parts}`);
  const text = `${notes.filter(Boolean).join("; ")}.`;
  return element("figure", {}, chart(curves, text), element("figcaption", { text }));
}

function chart(curves, text) {
  const all = curves.flat();
  const [bottom, top] = [Math.min(0, ...all), Math.max(1, ...all)];
  const y = (value) => (100 - MARGIN - ((100 - 2 * MARGIN) * (value - bottom)) / (top - bottom)).toFixed(2);
  const x = (rank, count) => (count === 1 ? 50 : (100 * rank) / (count - 1)).toFixed(2);
  const across = (name, value) => drawing("line", { class: name, x1: 0, x2: 100, y1: y(value), y2: y(value) });
  const line = (curve, at) => {
    const points = curve.map((value, rank) => `${x(rank, curve.length)},${y(value)}`).join(" ");
    return drawing("polyline", { class: at === curves.length - 1 ? "line" : "line faint", points });
  };
  const settings = { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": text };
  return drawing("svg", settings, across("zero", 0), across("level", 1), ...curves.map(line));
}

// "0.48 k-max(45)-like", as in the model card.
function similarity(resembles) {
  const match = /^([\d.]+) (.+)-like$/.exec(resembles ?? "");
  return match ? `closest to ${match[2]} pooling, similarity ${match[1]}` : resembles;
}

function listed(values) {
  return values.length === 1 ? String(values[0]) : `${values.slice(0, -1).join(", ")} and ${values.at(-1)}`;
}
