// Loads further results as the user scrolls, and remembers the position for the way back.

import { byId } from "./dom.js";

const AHEAD = "800px"; // below the screen
const PAGES = 6; // loaded by scrolling in a row; then a button, so that the end of the page can be reached
const LONG = 1.5; // screens from which the page has a link to its top
const PAUSE = 150; // milliseconds without scrolling before the position is stored

export class Scroller {
  // load() appends a page of results; moved(top) is called when the user has scrolled.
  constructor({ load, moved }) {
    this.load = load;
    this.left = PAGES;
    this.loading = false;
    this.observer = new IntersectionObserver(
      (entries) => entries.some(({ isIntersecting }) => isIntersecting) && this.#next(),
      { rootMargin: `0px 0px ${AHEAD}` },
    );
    byId("more").addEventListener("click", () => {
      this.left = PAGES;
      this.run({ focus: true });
    });
    let timer = 0;
    addEventListener("scroll", () => {
      clearTimeout(timer);
      timer = setTimeout(() => moved(scrollY), PAUSE);
    }, { passive: true });
  }

  // Called for new results; more tells whether others follow.
  reset(more) {
    this.left = PAGES;
    this.offer(more);
  }

  offer(more) {
    byId("more").hidden = !more;
    byId("to-top").hidden = document.documentElement.scrollHeight < LONG * innerHeight;
    this.observer.disconnect(); // observing again reports the position, even if it has not changed
    if (more) this.observer.observe(byId("more"));
  }

  async run(options) {
    if (this.loading) return;
    this.loading = true;
    byId("more").setAttribute("aria-disabled", true); // not disabled, which would lose the focus
    try {
      await this.load(options);
    } finally {
      this.loading = false;
      byId("more").setAttribute("aria-disabled", false);
    }
  }

  #next() {
    if (this.left <= 0 || this.loading) return;
    this.left -= 1;
    this.run({ focus: document.activeElement === byId("more") });
  }
}
