// The "about" dialog: the collection, and the pooling curves of its model.

import { get } from "./api.js";
import { figure } from "./curves.js";
import { byId, closeOnOutsideClick, day, element, number, pairs } from "./dom.js";

export function listenForAbout() {
  byId("about-open").addEventListener("click", () => {
    byId("about").showModal();
    showCurves();
  });
  byId("about-close").addEventListener("click", () => byId("about").close());
  closeOnOutsideClick(byId("about"));
}

export function describe(collection) {
  pairs(byId("about-facts"), [
    ["Name", collection.name],
    ["Images", number(collection.images)],
    ["Videos", collection.videos ? number(collection.videos) : ""],
    ["Captions", collection.captions ? number(collection.captions) : ""],
    ["Taken", collection.first === null ? "" : `${day(collection.first)} – ${day(collection.last)}`],
    ["Model", collection.model.name],
    ["Dimensions", number(collection.model.dimensions)],
    ["Confidence", collection.model.capabilities.confidence ? "" : "none: results are ranked by their score"],
  ]);
}

async function showCurves() {
  const place = byId("curves");
  if (place.querySelector("figure")) return;
  try {
    const { curves } = await get("model/curves", [], { cached: true });
    const none = element("p", { className: "small", text: "This model has no pooling curves." });
    byId("curves-note").hidden = !curves.length;
    place.replaceChildren(...(curves.length ? curves.map(figure) : [none]));
  } catch (problem) {
    place.replaceChildren(element("p", { className: "small", text: problem.message }));
  }
}
