// Global keyboard shortcuts: "/" focuses the search box, the down arrow moves from there to the results.

import { byId } from "./dom.js";

export function listenForKeys(grid) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const slash = event.key === "/" && !event.target.matches("input, select, textarea");
    const down = event.key === "ArrowDown" && event.target === byId("words") && grid.results.length > 0;
    if (!slash && !down) return;
    event.preventDefault();
    if (slash) byId("words").focus();
    else grid.focus(0);
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // a fragment would be a step in the history
    grid.focus(0);
  });
}
