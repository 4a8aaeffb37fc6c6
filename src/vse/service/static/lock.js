// The key, where the collection has one: asked for once, then a cookie carries its proof.

import { forget, openSession } from "./api.js";
import { byId } from "./dom.js";

export class Lock {
  constructor({ opened, refused }) {
    this.dialog = byId("key");
    this.open = false;
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#try();
    });
    this.dialog.addEventListener("close", () => (this.open ? opened() : refused()));
  }

  ask() {
    this.open = false;
    byId("key-problem").textContent = "";
    if (!this.dialog.open) this.dialog.showModal();
  }

  async #try() {
    try {
      await openSession(byId("key-value").value);
    } catch (problem) {
      byId("key-problem").textContent = problem.status === undefined ? "The server does not answer." : problem.message;
      byId("key-value").select();
      return;
    }
    byId("key-value").value = "";
    forget();
    this.open = true;
    this.dialog.close();
  }
}
