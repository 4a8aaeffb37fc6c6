// The key dialog of a protected collection. The key is asked for once; a session cookie remembers it.

import { clearCache, openSession } from "./api.js";
import { byId } from "./dom.js";

export class Login {
  constructor({ unlocked, dismissed }) {
    this.dialog = byId("key");
    this.done = false;
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.dialog.addEventListener("close", () => (this.done ? unlocked() : dismissed()));
  }

  open() {
    this.done = false;
    byId("key-problem").textContent = "";
    if (!this.dialog.open) this.dialog.showModal();
  }

  async #submit() {
    try {
      await openSession(byId("key-value").value);
    } catch (problem) {
      const silent = problem.status === undefined;
      byId("key-problem").textContent = silent ? "The server is not responding." : problem.message;
      byId("key-value").select();
      return;
    }
    byId("key-value").value = "";
    clearCache();
    this.done = true;
    this.dialog.close();
  }
}
