// The slideshow: the results one after another, each for some seconds. It waits while the page is hidden.

import { byId, icon } from "./dom.js";

const SECONDS = 4;
const LONGEST = 12; // of a video

export class Slideshow {
  // next() shows the following result and returns whether there is one.
  constructor(dialog, next) {
    this.dialog = dialog;
    this.next = next;
    this.on = false;
    this.paused = false;
    this.timer = 0;
    byId("slides-start").addEventListener("click", () => this.start());
    byId("slides-pause").addEventListener("click", () => this.togglePause());
    byId("slides-stop").addEventListener("click", () => this.stop());
    document.addEventListener("visibilitychange", () => this.#wait());
  }

  start() {
    this.on = true;
    this.paused = false;
    this.#show();
    byId("slides-pause").focus();
    this.shown();
  }

  stop() {
    if (!this.on) return;
    this.on = false;
    this.#show();
    this.#wait();
    if (this.dialog.open) byId("slides-start").focus();
  }

  togglePause() {
    this.paused = !this.paused;
    this.#show();
    this.shown();
  }

  // Called for every result that is shown, by the slideshow or the user: its time starts now.
  shown() {
    const video = this.on && !this.paused ? this.dialog.querySelector("video") : null;
    if (video) {
      video.muted = true; // or the browser may refuse to play
      video.play().catch(() => {});
    }
    this.#wait();
  }

  #wait() {
    clearTimeout(this.timer);
    if (!this.on || this.paused || document.hidden) return;
    this.timer = setTimeout(() => this.next() || this.stop(), 1000 * this.#seconds());
  }

  #seconds() {
    const [start, end] = (this.dialog.querySelector("video")?.dataset.moment ?? "").split(" ").map(Number);
    return end > start ? Math.min(LONGEST, Math.max(SECONDS, end - start)) : SECONDS;
  }

  #show() {
    this.dialog.classList.toggle("slides", this.on);
    byId("slides").hidden = !this.on;
    const [label, drawn] = this.paused ? ["Resume the slideshow", "play"] : ["Pause the slideshow", "pause"];
    byId("slides-pause").setAttribute("aria-label", label);
    byId("slides-pause").replaceChildren(icon(drawn));
  }
}
