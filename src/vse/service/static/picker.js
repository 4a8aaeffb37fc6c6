// A filter that is chosen from a list: folders as a tree, places and cameras as a flat one. Each entry has a count.

import { byId, element, icon, number, placeBelow } from "./dom.js";

const SEARCHABLE = 12; // entries from which the list has a search field
const KEYS = ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End", "Enter", " "];

export class Picker {
  // name is the id of the field that holds the value; its button and list are NAME-open and NAME-list.
  constructor(name, { all, changed }) {
    this.name = name;
    this.all = all; // what the button shows while nothing is chosen
    this.field = byId(name);
    this.button = byId(`${name}-open`);
    this.popover = byId(`${name}-list`);
    this.tree = element("ul", { role: "tree", "aria-label": this.popover.getAttribute("aria-label") });
    this.find = element("input", { type: "search", placeholder: "Find", "aria-label": `Find a ${name}` });
    this.popover.append(this.find, this.tree);
    this.nodes = [];
    this.changed = changed;
    placeBelow(this.popover, this.button, 20);
    this.popover.addEventListener("beforetoggle", ({ newState }) => newState === "open" && this.#prepare());
    this.popover.addEventListener("toggle", ({ newState }) => newState === "open" && this.#opened());
    this.find.addEventListener("input", () => this.#draw());
    this.find.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      this.#items()[0]?.focus();
    });
    this.tree.addEventListener("click", (event) => this.#clicked(event));
    this.tree.addEventListener("keydown", (event) => this.#key(event));
  }

  get value() {
    return this.field.value;
  }

  set value(value) {
    this.field.value = value;
    this.show();
  }

  // Hidden while there is nothing to choose from.
  offer(nodes) {
    this.nodes = nodes;
    this.show();
  }

  show() {
    this.button.hidden = !this.nodes.length && !this.value;
    this.button.classList.toggle("set", Boolean(this.value));
    byId(`${this.name}-shown`).textContent = this.value || this.all;
  }

  // Before it is shown, or the list of the last time would appear for a moment.
  #prepare() {
    this.find.value = "";
    this.find.hidden = count(this.nodes) < SEARCHABLE;
    this.#draw();
  }

  #opened() {
    this.#reach();
    const chosen = this.tree.querySelector('[aria-selected="true"]');
    chosen?.scrollIntoView({ block: "nearest" });
    (this.find.hidden ? chosen : this.find)?.focus();
  }

  #draw() {
    const wanted = this.find.value.trim().toLowerCase();
    const everything = { value: "", label: this.all, children: [] };
    const nodes = wanted ? matching(this.nodes, wanted) : [everything, ...this.nodes];
    this.tree.replaceChildren(...nodes.map((node) => this.#item(node, 1, nodes.length <= 2)));
    this.#reach();
  }

  // One entry can be reached with Tab: the chosen one, or the first.
  #reach() {
    const items = this.#items();
    const current = items.find((each) => each.dataset.value === this.value) ?? items[0];
    if (current) current.tabIndex = 0;
  }

  #item({ value, label, files, children }, level, open) {
    const inside = children.length > 0;
    const opened = inside && (open || this.value.startsWith(`${value}/`));
    const toggle = element("span", { className: "twist" }, inside ? icon("chevron") : null);
    const shown = element("span", { className: "label", text: label });
    const size = element("span", { className: "count", text: files === undefined ? "" : number(files) });
    const made = element("li", {
      role: "treeitem",
      tabindex: -1,
      "data-value": value,
      "aria-level": level,
      "aria-selected": String(value === this.value),
      "aria-expanded": inside ? String(opened) : null,
      "aria-label": files === undefined ? label : `${label}, ${number(files)}`,
    }, element("div", { className: "row" }, toggle, shown, size));
    if (inside) made.append(element("ul", { role: "group" }, ...children.map((each) => this.#item(each, level + 1, false))));
    return made;
  }

  // Those that are not inside a closed one.
  #items() {
    return [...this.tree.querySelectorAll('[role="treeitem"]')].filter((each) => each.offsetParent !== null);
  }

  #clicked({ target }) {
    const item = target.closest('[role="treeitem"]');
    if (!item) return;
    if (target.closest(".twist") && item.hasAttribute("aria-expanded")) expand(item, !isOpen(item));
    else this.#choose(item.dataset.value);
  }

  #choose(value) {
    this.popover.hidePopover();
    this.button.focus();
    if (value === this.value) return;
    this.value = value;
    this.changed();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS.includes(event.key)) return;
    const items = this.#items();
    const here = event.target.closest('[role="treeitem"]');
    const at = items.indexOf(here);
    event.preventDefault();
    if (event.key === "Enter" || event.key === " ") this.#choose(here.dataset.value);
    else if (event.key === "ArrowRight" && here.hasAttribute("aria-expanded") && !isOpen(here)) expand(here, true);
    else if (event.key === "ArrowLeft" && isOpen(here)) expand(here, false);
    else {
      const steps = {
        ArrowDown: items[at + 1],
        ArrowUp: items[at - 1] ?? (this.find.hidden ? undefined : this.find),
        ArrowRight: here.querySelector('[role="treeitem"]'),
        ArrowLeft: here.parentElement.closest('[role="treeitem"]'),
        Home: items[0],
        End: items.at(-1),
      };
      const next = steps[event.key];
      if (!next) return;
      here.tabIndex = -1;
      if (next !== this.find) next.tabIndex = 0;
      next.focus();
    }
  }
}

const isOpen = (item) => item.getAttribute("aria-expanded") === "true";
const expand = (item, open) => item.setAttribute("aria-expanded", String(open));
const count = (nodes) => nodes.reduce((sum, node) => sum + 1 + count(node.children), 0);

function matching(nodes, wanted) {
  return nodes.flatMap((node) => {
    const hit = node.value.toLowerCase().includes(wanted) ? [{ ...node, label: node.value, children: [] }] : [];
    return [...hit, ...matching(node.children, wanted)];
  });
}

// "2024/beach" is below "2024", which need not be listed itself.
export function folderTree(folders) {
  const top = [];
  const known = new Map();
  const node = (path) => {
    if (known.has(path)) return known.get(path);
    const cut = path.lastIndexOf("/");
    const made = { value: path, label: path.slice(cut + 1), children: [] };
    known.set(path, made);
    (cut < 0 ? top : node(path.slice(0, cut)).children).push(made);
    return made;
  };
  for (const { path, files } of folders) node(path).files = files;
  const sort = (nodes) => {
    nodes.sort((one, other) => one.label.localeCompare(other.label, undefined, { numeric: true }));
    for (const each of nodes) sort(each.children);
    return nodes;
  };
  return sort(top);
}

export const flatList = (entries) => entries.map(({ name, files }) => ({ value: name, label: name, files, children: [] }));
