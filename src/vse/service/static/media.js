// The image or video in the viewer, as large as fits, with the evidence on top.

import { base } from "./api.js";
import { byId, element, icon } from "./dom.js";
import { heatmap } from "./evidence.js";
import { fullPath } from "./files.js";
import { retryImage } from "./retry.js";

const UNAVAILABLE = {
  image: ["This image cannot be shown", "It was moved, changed or deleted after indexing."],
  video: ["This video cannot be played", "The browser does not support its format, or the file is missing."],
};
const MISSING = ["This file is missing", "It was moved or deleted after indexing, or its disk is not connected."];
const PREVIEW = 1600; // pixels of the longer side of a preview
const SHOWN_BY_BROWSERS = /\.(jpe?g|png|webp|gif|avif)$/i;

export class Media {
  constructor() {
    this.place = byId("media");
    this.originals = false; // whether the server gives original files to this client
  }

  // Returns the box of an image, which can be zoomed, or null.
  show(result) {
    const { kind, missing } = result;
    if (missing) {
      this.#say(...MISSING, fullPath(result));
      return null;
    }
    const url = `${base()}items/${result.id}`;
    const shown = kind === "video" ? video(url, result) : image(url, result);
    const box = element("div", { className: "frame" }, shown);
    // The aspect ratio is known before the image is loaded, and the evidence is placed relative to the box.
    box.style.setProperty("--width", result.width || 640);
    box.style.setProperty("--height", result.height || 480);
    const unavailable = () => box.isConnected && this.#say(...UNAVAILABLE[kind], fullPath(result));
    shown.addEventListener("error", () => (kind === "video" ? unavailable() : retryImage(shown, unavailable)));
    this.place.replaceChildren(box);
    return kind === "video" ? null : box;
  }

  clear() {
    this.place.replaceChildren(); // a video would keep playing
  }

  // Replaces the preview of a large image by the image itself, once that is loaded.
  async sharpen({ id, name, width, height }) {
    const shown = this.place.querySelector(".frame img");
    if (!this.originals || !shown || Math.max(width, height) <= PREVIEW || !SHOWN_BY_BROWSERS.test(name)) return;
    const original = new Image();
    original.src = `${base()}items/${id}/original`;
    try {
      await original.decode();
    } catch {
      return; // the preview is good enough
    }
    if (shown.isConnected) shown.src = original.src;
  }

  showEvidence(found) {
    this.hideEvidence();
    const box = this.place.querySelector(".frame");
    if (!box) return;
    box.append(heatmap(found));
    box.classList.add("explained");
  }

  hideEvidence() {
    this.place.querySelector(".evidence")?.remove();
    this.place.querySelector(".frame")?.classList.remove("explained");
  }

  seek(second) {
    const player = this.place.querySelector("video");
    if (player) player.currentTime = second;
  }

  #say(title, text, path) {
    const lines = [element("strong", { text: title }), element("span", { text }), element("code", { text: path })];
    this.place.replaceChildren(element("div", { className: "absent", role: "status" }, icon("missing"), ...lines));
  }
}

const image = (url, { name }) => element("img", { src: `${url}/preview`, alt: name, draggable: "false" });

// The fragment makes the player start and stop with the moment that was found.
function video(url, { start, end, name }) {
  const whole = (start ?? null) === null;
  return element("video", {
    src: `${url}/media${whole ? "" : `#t=${start},${end}`}`,
    poster: `${url}/preview`,
    "aria-label": name,
    "data-moment": whole ? "" : `${start} ${end}`,
    controls: true,
    playsinline: true,
    preload: "metadata",
  });
}
