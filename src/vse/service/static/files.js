// What can be done with the file of a result: open or download it, copy its path, show it in its folder.

import { base, post } from "./api.js";
import { byId } from "./dom.js";

// The path as the user knows it. The server tells the folder above it only to its own machine.
export function fullPath({ root, path, folder, name }) {
  const below = path ?? (folder ? `${folder}/${name}` : name);
  return root ? `${root.replace(/\/$/, "")}/${below}` : below;
}

// Without HTTPS, browsers offer no clipboard except on this machine; selecting and copying works everywhere.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "visually-hidden";
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    const before = document.activeElement;
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    before?.focus();
    return copied;
  }
}

export class FileActions {
  constructor() {
    this.result = null;
    this.offered = {};
    byId("file-copy").addEventListener("click", () => this.copyPath());
    byId("file-reveal").addEventListener("click", () => this.#reveal());
  }

  // original, reveal: whether the server offers them to this client.
  offer(offered = {}) {
    this.offered = offered;
    if (this.result) this.show(this.result);
  }

  show(result) {
    this.result = result;
    const original = `${base()}items/${result.id}/original`;
    byId("file-open").href = original;
    byId("file-download").href = `${original}?download=1`;
    byId("file-download").download = result.name;
    byId("file-open").hidden = byId("file-download").hidden = !this.offered.original || Boolean(result.missing);
    byId("file-reveal").hidden = !this.offered.reveal || Boolean(result.missing);
    this.#say("");
  }

  async copyPath() {
    const path = fullPath(this.result);
    this.#say((await copyText(path)) ? "Path copied" : `The browser does not allow copying: ${path}`);
  }

  async #reveal() {
    try {
      await post(`items/${this.result.id}/reveal`);
      this.#say("Shown in its folder");
    } catch (problem) {
      this.#say(problem.status === undefined ? "The server is not responding." : problem.message);
    }
  }

  #say(text) {
    byId("file-said").textContent = text;
  }
}
