// The image or video in the viewer, as large as fits, with the evidence on top.

import { byId, element } from "./dom.js";
import { heatmap } from "./evidence.js";
import { retryImage } from "./retry.js";

const UNAVAILABLE = {
  image: "This image cannot be shown. It was moved, changed or deleted after indexing.",
  video: "This video cannot be played. The browser does not support its format, or the file is missing.",
};

export class Media {
  constructor() {
    this.place = byId("media");
  }

  show(result) {
    const url = `api/v1/items/${result.id}`;
    const shown = result.kind === "video" ? video(url, result) : image(url, result);
    const box = element("div", { className: "frame" }, shown);
    // The aspect ratio is known before the image is loaded, and the evidence is placed relative to the box.
    box.style.setProperty("--width", result.width || 640);
    box.style.setProperty("--height", result.height || 480);
    const unavailable = () => box.replaceWith(element("p", { text: UNAVAILABLE[result.kind] }));
    shown.addEventListener("error", () => (result.kind === "video" ? unavailable() : retryImage(shown, unavailable)));
    this.place.replaceChildren(box);
  }

  clear() {
    this.place.replaceChildren(); // a video would keep playing
  }

  showEvidence(found) {
    this.hideEvidence();
    const box = this.place.querySelector(".frame");
    if (!box) return;
    box.append(heatmap(found));
    box.classList.add("explained");
  }

  hideEvidence() {
    this.place.querySelector("canvas")?.remove();
    this.place.querySelector(".frame")?.classList.remove("explained");
  }

  seek(second) {
    const player = this.place.querySelector("video");
    if (player) player.currentTime = second;
  }
}

const image = (url, { name }) => element("img", { src: `${url}/preview`, alt: name, draggable: "false" });

// The fragment makes the player start and stop with the moment that was found.
function video(url, { start, end, name }) {
  const moment = start === null ? "" : `#t=${start},${end}`;
  return element("video", {
    src: `${url}/media${moment}`,
    poster: `${url}/preview`,
    "aria-label": name,
    controls: true,
    playsinline: true,
    preload: "metadata",
  });
}
