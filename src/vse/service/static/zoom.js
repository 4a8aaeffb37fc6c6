// Zooming into the image of the viewer: wheel, pinch, double click, keys and buttons; dragging moves it.

import { byId } from "./dom.js";

const MOST = 8;
const STEP = 1.4; // of a button or key
const CLOSE = 2.5; // of a double click
const SWIPE = 60; // pixels
const PAN = 80; // pixels per key press

export class Zoom {
  // swiped(step) is called for a swipe to the left (1) or right (-1) of an image that is not zoomed; closer() when
  // the image is enlarged for the first time.
  constructor(stage, { swiped, closer }) {
    this.stage = stage;
    this.swiped = swiped;
    this.closer = closer;
    this.frame = null; // what is scaled; null for a video, which has controls of its own
    this.pointers = new Map();
    this.reset();
    stage.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    stage.addEventListener("dblclick", (event) => this.frame && this.#at(event, this.scale > 1 ? 1 / this.scale : CLOSE));
    stage.addEventListener("pointerdown", (event) => this.#down(event));
    stage.addEventListener("pointermove", (event) => this.#moved(event));
    for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, (event) => this.#up(event));
    byId("zoom-in").addEventListener("click", () => this.by(STEP));
    byId("zoom-out").addEventListener("click", () => this.by(1 / STEP));
    byId("zoom-fit").addEventListener("click", () => this.reset());
  }

  // Shows another image, or null for what cannot be zoomed.
  use(frame) {
    this.frame = frame;
    this.pointers.clear();
    byId("zoom").hidden = frame === null;
    this.reset();
  }

  get isZoomed() {
    return this.scale > 1;
  }

  reset() {
    this.scale = 1;
    this.x = this.y = 0;
    this.#draw();
  }

  // Around the middle of the stage.
  by(factor) {
    const box = this.stage.getBoundingClientRect();
    this.#at({ clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }, factor);
  }

  // Returns whether the key was used: + - 0, and the arrows while the image is zoomed.
  key(key) {
    if (!this.frame) return false;
    const moves = { arrowleft: [1, 0], arrowright: [-1, 0], arrowup: [0, 1], arrowdown: [0, -1] };
    if (key === "+" || key === "=") this.by(STEP);
    else if (key === "-") this.by(1 / STEP);
    else if (key === "0") this.reset();
    else if (key in moves && this.isZoomed) this.#pan(PAN * moves[key][0], PAN * moves[key][1]);
    else return false;
    return true;
  }

  // The point below the pointer stays where it is.
  #at({ clientX, clientY }, factor) {
    if (!this.frame) return;
    const before = this.scale;
    this.scale = Math.min(MOST, Math.max(1, before * factor));
    const box = this.stage.getBoundingClientRect();
    const [px, py] = [clientX - box.left - box.width / 2, clientY - box.top - box.height / 2];
    const grown = this.scale / before;
    this.x = px - (px - this.x) * grown;
    this.y = py - (py - this.y) * grown;
    if (before === 1 && this.scale > 1) this.closer();
    this.#draw();
  }

  #pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.#draw();
  }

  // The image never leaves the stage.
  #draw() {
    if (!this.frame) return;
    const most = (own, room) => Math.max(0, (own * this.scale - room) / 2);
    const [right, down] = [most(this.frame.offsetWidth, this.stage.clientWidth), most(this.frame.offsetHeight, this.stage.clientHeight)];
    this.x = Math.min(right, Math.max(-right, this.x));
    this.y = Math.min(down, Math.max(-down, this.y));
    this.frame.style.setProperty("transform", this.scale === 1 ? "none" : `translate(${this.x}px, ${this.y}px) scale(${this.scale})`);
    this.stage.classList.toggle("zoomed", this.isZoomed);
    byId("zoom-fit").textContent = `${Math.round(this.scale * 100)}%`;
    byId("zoom-out").setAttribute("aria-disabled", this.scale === 1);
    byId("zoom-in").setAttribute("aria-disabled", this.scale === MOST);
  }

  #wheel(event) {
    if (!this.frame) return;
    event.preventDefault();
    this.#at(event, Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002))); // a pinch on a touchpad sends Ctrl
  }

  #down(event) {
    if (!this.frame || !this.frame.contains(event.target)) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, from: event.clientX });
    if (this.isZoomed || this.pointers.size > 1) this.stage.setPointerCapture(event.pointerId);
  }

  #moved(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = (point) => Math.hypot(point.x - other.x, point.y - other.y) || 1;
      const middle = { clientX: (event.clientX + other.x) / 2, clientY: (event.clientY + other.y) / 2 };
      this.#at(middle, apart({ x: event.clientX, y: event.clientY }) / apart(before));
    } else if (this.isZoomed) this.#pan(event.clientX - before.x, event.clientY - before.y);
    this.pointers.set(event.pointerId, { ...before, x: event.clientX, y: event.clientY });
  }

  #up(event) {
    const start = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    const across = start ? event.clientX - start.from : 0;
    if (event.type === "pointerup" && event.pointerType === "touch" && !this.isZoomed && !this.pointers.size && Math.abs(across) > SWIPE) {
      this.swiped(across < 0 ? 1 : -1);
    }
  }
}
