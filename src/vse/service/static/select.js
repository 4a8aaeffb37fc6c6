// Selected results, across searches, and what can be done with them: a list, an archive, their paths.

import { download } from "./api.js";
import { byId, counted } from "./dom.js";
import { copyText, fullPath } from "./files.js";

const EXTENDS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

export class Selection {
  constructor(grid) {
    this.grid = grid;
    this.chosen = new Map(); // result by id
    this.anchor = 0; // where a range begins
    this.choosing = false; // whether a click on a tile selects it
    this.limit = Infinity;
    grid.place.addEventListener("tiles", () => this.#mark());
    grid.place.addEventListener("click", (event) => this.#click(event), true);
    grid.place.addEventListener("keydown", (event) => this.#key(event));
    byId("select").addEventListener("click", () => (this.choosing ? this.clear() : this.#choose(true)));
    byId("selection-clear").addEventListener("click", () => {
      this.clear();
      grid.focus(grid.current);
    });
    byId("selection-all").addEventListener("click", () => this.#range(0, grid.results.length - 1));
    byId("selection-copy").addEventListener("click", () => this.#copy());
    for (const format of ["csv", "zip"]) byId(`selection-${format}`).addEventListener("click", () => this.#export(format));
  }

  // What the server offers: lists, archives, and how many items at once.
  offer({ lists = false, archives = false, max_export: limit = Infinity } = {}) {
    byId("selection-csv").hidden = !lists;
    byId("selection-zip").hidden = !archives;
    this.limit = limit;
  }

  clear() {
    this.chosen.clear();
    this.#choose(false);
  }

  #choose(on) {
    this.choosing = on;
    this.#mark();
  }

  #toggle(index) {
    const result = this.grid.results[index];
    if (this.chosen.delete(result.id)) this.choosing = this.choosing && this.chosen.size > 0;
    else this.#add(result);
    this.anchor = index;
    this.#mark();
  }

  #range(from, to) {
    for (let at = Math.min(from, to); at <= Math.max(from, to); at += 1) this.#add(this.grid.results[at]);
    this.#mark();
  }

  #add(result) {
    this.chosen.set(result.id, result);
    this.choosing = true;
  }

  #click(event) {
    const tile = event.target.closest(".tile");
    const box = event.target.closest(".check");
    if (!tile || (box && event.target.tagName !== "INPUT")) return; // the label clicks its box in turn
    const byKey = event.detail === 0 && !box; // Enter opens a result even while others are selected
    if (!box && (byKey || !(this.choosing || event.shiftKey || event.ctrlKey || event.metaKey))) return;
    const index = Number(tile.querySelector("[data-index]").dataset.index);
    if (!box) event.preventDefault(); // the grid would open it
    if (event.shiftKey) this.#range(this.anchor, index);
    else this.#toggle(index);
  }

  #key(event) {
    const tile = event.target.closest(".tile");
    const index = this.grid.current; // after a move: this listener is called after that of the grid
    if (!tile) return;
    const control = event.ctrlKey || event.metaKey;
    if (event.key === "Escape" && this.choosing) this.clear();
    else if (event.key.toLowerCase() === "a" && control) this.#range(0, this.grid.results.length - 1);
    else if (control || event.altKey) return;
    else if (event.key.toLowerCase() === "x") this.#toggle(index);
    else if (event.shiftKey && EXTENDS.includes(event.key)) {
      const from = Number(tile.querySelector("[data-index]").dataset.index);
      if (!this.chosen.size) this.anchor = from;
      this.#range(from, index);
    } else return;
    event.preventDefault();
  }

  #mark() {
    for (const tile of this.grid.place.querySelectorAll(".tile")) {
      const chosen = this.chosen.has(Number(tile.dataset.id));
      tile.classList.toggle("selected", chosen);
      tile.querySelector(".check input").checked = chosen;
    }
    const count = this.chosen.size;
    document.body.classList.toggle("selecting", this.choosing);
    byId("select").setAttribute("aria-pressed", this.choosing);
    byId("selection").hidden = !this.choosing;
    byId("selection-count").textContent = count ? `${counted(count, "file")} selected` : "Select files";
    const none = count === 0 || count > this.limit;
    for (const name of ["csv", "zip", "copy"]) byId(`selection-${name}`).disabled = none;
    if (count > this.limit) this.#say(`${counted(count, "file")} selected: at most ${this.limit} can be exported`);
  }

  #say(text) {
    byId("selection-count").textContent = text;
  }

  async #export(format) {
    const count = this.chosen.size;
    this.#say(format === "zip" ? `Packing ${counted(count, "file")}…` : "Writing the list…");
    try {
      await download("export", { ids: [...this.chosen.keys()], format }, `export.${format}`);
      this.#say(`${counted(count, "file")} exported`);
    } catch (problem) {
      this.#say(problem.status === undefined ? "The server is not responding." : problem.message);
    }
  }

  async #copy() {
    const paths = [...new Set([...this.chosen.values()].map(fullPath))];
    const copied = await copyText(paths.join("\n"));
    this.#say(copied ? `${counted(paths.length, "path")} copied` : "The browser does not allow copying");
  }
}
