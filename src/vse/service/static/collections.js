// The chooser of a server with several collections.

import { get, useCollection } from "./api.js";
import { byId, element, number } from "./dom.js";

export class Collections {
  // chosen(name) is called when the user has chosen another one.
  constructor(chosen) {
    this.name = null; // in the URL; null for the first one
    this.loaded = false;
    byId("collection").addEventListener("change", () => chosen(byId("collection").value));
  }

  // Returns whether another one is shown from now on.
  use(name) {
    if (name === this.name) return false;
    this.name = name;
    useCollection(name);
    return true;
  }

  // Called with the one that is shown, which tells how many there are.
  async describe(collection) {
    if (!(collection.collections > 1)) return;
    if (!this.loaded) {
      try {
        const { collections = [] } = await get("collections", [], { everywhere: true });
        const option = ({ name, files }) => element("option", { value: name, text: files === null ? name : `${name} (${number(files)})` });
        byId("collection").replaceChildren(...collections.map(option));
        byId("collections").hidden = collections.length < 2;
        this.loaded = true;
      } catch {
        return; // it is asked for again with the next one
      }
    }
    byId("collection").value = this.name ?? collection.name;
  }
}
