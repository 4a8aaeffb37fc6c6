// The picture or the clip in the viewer, as large as its stage allows, and the evidence over it.

import { byId, element } from "./dom.js";
import { veil } from "./evidence.js";
import { loadAgain } from "./retry.js";

const UNSEEN = {
  image: "This picture cannot be shown: it was moved, changed or deleted since it was indexed.",
  video: "This clip cannot be played: the browser does not know its format, or the file is not there any more.",
};

export class Stage {
  constructor() {
    this.place = byId("stage");
  }

  show(result) {
    const address = `api/v1/items/${result.id}`;
    const shown = result.kind === "video" ? clip(address, result) : picture(address, result);
    const box = element("div", { className: "picture" }, shown);
    // The shape is known before the picture is there, and the evidence needs no other measure.
    box.style.setProperty("--width", result.width || 640);
    box.style.setProperty("--height", result.height || 480);
    const unseen = () => box.replaceWith(element("p", { text: UNSEEN[result.kind] }));
    shown.addEventListener("error", () => (result.kind === "video" ? unseen() : loadAgain(shown, unseen)));
    this.place.replaceChildren(box);
  }

  clear() {
    this.place.replaceChildren(); // a clip would go on playing
  }

  cover(found) {
    this.uncover();
    const box = this.place.querySelector(".picture");
    if (!box) return;
    box.append(veil(found));
    box.classList.add("explained");
  }

  uncover() {
    this.place.querySelector("canvas")?.remove();
    this.place.querySelector(".picture")?.classList.remove("explained");
  }

  seek(second) {
    const video = this.place.querySelector("video");
    if (video) video.currentTime = second;
  }
}

const picture = (address, { name }) => element("img", { src: `${address}/preview`, alt: name, draggable: "false" });

// The fragment lets the player begin and stop with the moment that was found.
function clip(address, { start, end, name }) {
  const moment = start === null ? "" : `#t=${start},${end}`;
  return element("video", {
    src: `${address}/media${moment}`,
    poster: `${address}/preview`,
    "aria-label": name,
    controls: true,
    playsinline: true,
    preload: "metadata",
  });
}
