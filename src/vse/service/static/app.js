// The page: reads the query, sends it, and shows the results.

import { describe, listenForAbout } from "./about.js";
import { clearCache, get, post } from "./api.js";
import { Collections } from "./collections.js";
import { Dates } from "./dates.js";
import { byId, counted, placeBelow } from "./dom.js";
import { emptyMessage, refusedMessage } from "./empty.js";
import { Grid } from "./grid.js";
import { listenForImages } from "./images.js";
import { listenForKeys } from "./keys.js";
import { Login } from "./login.js";
import { flatList, folderTree, Picker } from "./picker.js";
import { Query } from "./query.js";
import { pauseAfter } from "./retry.js";
import { Scroller } from "./scroll.js";
import { Selection } from "./select.js";
import { showBrowseStatus, showError, showSearchStatus } from "./status.js";
import { Suggestions } from "./suggest.js";
import { PageUrl } from "./url.js";
import { Viewer } from "./viewer.js";

const DEBOUNCE = 130; // milliseconds without a key press before a search starts
const KEEP_RESULTS = 600; // milliseconds that results stay when an incomplete word finds nothing
const SLOW = 180; // milliseconds after which the page shows that it is waiting
const PAGE_SIZE = 48;
const NOTHING = { path: "items", parameters: [], queryId: null, found: {} };

const changed = () => search();
const picker = (name) => new Picker(name, { all: "All", changed });
const pickers = { folder: picker("folder"), place: picker("place"), camera: picker("camera") };
const query = new Query(new Dates(changed), Object.values(pickers));
const url = new PageUrl(query, (same) => {
  if (!same || url.opened === null) viewer.close();
  if (same) reopen();
  else begin();
});
const grid = new Grid((index) => {
  url.enter(grid.results[index].id);
  viewer.open(grid.results, index, shown);
});
const selection = new Selection(grid);
const scroller = new Scroller({
  load: more,
  moved: (top) => returning ?? url.remember({ top, count: grid.results.length }),
});
const suggestions = new Suggestions(useText);
const WORDS_PLACEHOLDER = byId("words").placeholder;
const collections = new Collections((name) => {
  query.clear();
  query.collection = name;
  url.write(false);
  begin();
});
const viewer = new Viewer({
  renew: async (asked) => {
    if (asked !== shown) return false;
    clearCache();
    query.queryId = null;
    asked.queryId = (await request()).found.query_id;
    return true;
  },
  like: ({ id, thumbnail }) => {
    query.setLike({ id, thumbnail });
    byId("words").value = "";
    byId("all").checked = false;
    search();
  },
  search: useText,
  filter: (name, value) => {
    query.drop(name);
    pickers[name].value = value;
    search();
  },
  more: async (results) => {
    if (results === grid.results && shown.found.more) await scroller.run({});
  },
  left: () => url.leave(),
  closed: (result) => grid.focusOn(result),
});
const login = new Login({
  unlocked: begin,
  dismissed: () => showError("This collection is locked. Search again to enter the key."),
});
let shown = NOTHING; // the query whose results are shown, and the last page of them
let collection = null; // until it is loaded
let timer = 0;
let emptying = 0;
let introducing = 0;
let running = null;
let returning = null; // the place in the results that is being restored

async function search({ write = true, typing = false, keep = false, restore = null } = {}) {
  clearTimeout(timer);
  clearTimeout(emptying);
  running?.abort();
  const mine = (running = new AbortController());
  returning = restore?.top ? restore : null;
  query.show();
  if (write) url.write(typing);
  const slow = setTimeout(() => document.body.classList.add("busy"), SLOW);
  try {
    const response = await request(mine.signal);
    if (mine !== running) return;
    if (query.image) query.queryId = response.found.query_id;
    const waits = keep && !response.found.results.length && grid.results.length > 0;
    if (waits) emptying = setTimeout(() => show(response), KEEP_RESULTS);
    else await show(response, restore);
    document.body.classList.toggle("busy", waits);
  } catch (problem) {
    if (mine !== running) return;
    document.body.classList.remove("busy");
    failed(problem);
  } finally {
    clearTimeout(slow);
    if (mine === running) returning = null;
  }
}

async function show({ found, path, parameters }, restore = null) {
  const browsing = path === "items";
  shown = { path, parameters, queryId: found.query_id ?? null, found };
  document.body.classList.remove("busy");
  grid.show(found.results, { byDate: browsing || byId("sort").value === "date" });
  byId("sorting").hidden = browsing || byId("sort").disabled;
  byId("select").hidden = !found.results.length;
  suggestions.show(byId("words").value.trim() === "" && query.isEmpty);
  showStatus(found);
  scroller.reset(found.more);
  scrollTo(0, 0);
  if (restore?.top) await returnTo(restore);
  reopen();
}

// Loads as many results as there were, and scrolls to where the user was.
async function returnTo({ top, count }) {
  const { parameters } = shown;
  while (shown.parameters === parameters && shown.found.more && grid.results.length < count) {
    const before = grid.results.length;
    await scroller.run({});
    if (grid.results.length === before) break;
  }
  if (shown.parameters === parameters) scrollTo(0, top);
}

// Opens the result that the current history entry has open: after a reload, and when going forward.
function reopen() {
  if (url.opened === null || viewer.isOpen) return;
  const index = grid.results.findIndex(({ id }) => id === url.opened);
  if (index < 0) url.leave();
  else viewer.open(grid.results, index, shown);
}

async function request(signal) {
  if (query.isEmpty) {
    const parameters = query.filters();
    return { path: "items", parameters, found: await page("items", parameters, [], { signal }) };
  }
  if (query.image && !query.queryId) {
    const form = query.form();
    form.append("k", PAGE_SIZE);
    const found = await post("search", form, { signal });
    return { path: "search", parameters: query.parameters(found.query_id), found };
  }
  const parameters = query.parameters();
  return { path: "search", parameters, found: await page("search", parameters, [], { signal }) };
}

async function page(path, parameters, position, { signal } = {}) {
  const found = await get(path, [...parameters, ["k", PAGE_SIZE], ...position], { signal, cached: path === "search" });
  if (path === "search") return found;
  const whole = (file) => ({ ...file, start: null, end: null }); // without a query a video stands for itself
  return { ...found, results: found.results.map(whole) };
}

async function more({ focus = false } = {}) {
  const { path, parameters, found: last } = shown;
  const first = grid.results.length;
  try {
    const following = last.cursor ? [[], [["cursor", last.cursor]]] : [parameters, [["offset", first]]];
    const found = await page(path, ...following); // a cursor stands for the whole request
    if (shown.parameters !== parameters) return;
    shown.found = found;
    grid.append(found.results);
    showStatus(found);
    scroller.offer(found.more);
    if (focus) grid.focus(first);
  } catch (problem) {
    if (shown.parameters === parameters) failed(problem, () => shown.parameters === parameters && scroller.run({ focus }));
  }
}

function showStatus(found) {
  if (shown.path === "items") showBrowseStatus(found, grid.results, query.parts().excluded);
  else showSearchStatus(found, grid.results);
  byId("rest").hidden = found.more || !grid.results.length || !query.hides(grid.results);
  showEmpty();
  if (collection?.files === 0) introduce(); // files may have been indexed since
}

function showEmpty() {
  if (grid.results.length) return;
  const browsing = shown.path === "items";
  grid.showMessage(...emptyMessage({ found: shown.found, query, collection, browsing, drop: dropConditions }));
}

function dropConditions(...names) {
  for (const name of names) query.drop(name);
  search();
  byId("words").focus();
}

function failed(problem, retry = () => search({ write: false })) {
  const pause = pauseAfter(problem);
  if (problem.status === 401) login.open();
  else if (problem.status === 404 && query.image && query.queryId) {
    query.queryId = null; // the server no longer has the image: upload it again
    search({ write: false });
  } else if (pause !== null) {
    const why = problem.status === undefined ? "is not responding" : `is busy (${problem.message})`;
    showError(`The server ${why}. Retrying…`);
    timer = setTimeout(retry, pause);
  } else if (problem.name !== "AbortError") {
    if (problem.status === 422) refused();
    showError(problem.message);
  }
}

// What is shown belongs to another query. A filter may be the reason, such as a folder that does not exist.
function refused() {
  shown = NOTHING;
  grid.showMessage(...refusedMessage(query, dropConditions));
  scroller.reset(false);
}

// Called when the page is opened or unlocked, and after a step in the history. Results do not wait for the description
// of the collection.
function begin() {
  if (collections.use(query.collection)) {
    collection = null;
    selection.clear();
  }
  if (collection === null) introduce();
  search({ write: false, restore: url.place });
}

async function introduce() {
  clearTimeout(introducing);
  const { collection: name } = query;
  try {
    const found = await get("collection");
    if (name !== query.collection) return; // another one was chosen meanwhile
    collection = found;
  } catch (problem) {
    if (name !== query.collection) return;
    const pause = pauseAfter(problem);
    if (pause !== null) introducing = setTimeout(introduce, pause);
    else if (problem.status !== 401) showError(problem.message); // on 401 the search asks for the key
    return;
  }
  document.title = `${collection.name} · vse`;
  describe(collection);
  collections.describe(collection);
  suggestions.describe(collection);
  pickers.folder.offer(folderTree(collection.folders));
  pickers.place.offer(flatList(collection.places ?? []));
  pickers.camera.offer(flatList(collection.cameras ?? []));
  byId("words").disabled = !collection.searches_text;
  byId("words").placeholder = placeholder(collection);
  const { evidence } = collection.model.capabilities;
  viewer.offer({ evidence, grades: Boolean(collection.grades), files: collection.original_files });
  selection.offer(collection.original_files);
  byId("foot-collection").textContent = `${collection.name} · ${counted(collection.files, "file")}`;
  byId("key-why").hidden = !evidence && !collection.videos;
  if (query.offer(collection)) search({ write: false, restore: returning ?? url.place });
  byId("sorting").hidden = shown.path === "items" || byId("sort").disabled;
  if (grid.isEmpty) showEmpty();
}

function placeholder({ external, searches_text: searchesText }) {
  if (external) return "Embeddings computed elsewhere: browse, or search by item";
  return searchesText ? WORDS_PLACEHOLDER : "This model does not read text: search by image";
}

// A text of the page itself: a suggestion, or a keyword of an image.
function useText(text) {
  byId("words").value = text;
  byId("all").checked = false;
  query.setLike(null);
  query.setImage(null);
  search();
  completed();
  if (!viewer.isOpen) byId("words").focus();
}

// What is typed from now on is another query.
function completed() {
  url.seal();
  suggestions.remember(byId("words").value);
}

function typed() {
  query.queryId = null; // an image is encoded together with the text
  byId("all").checked = false; // it was asked for with another text
  clearTimeout(timer);
  clearTimeout(emptying); // the next response may have results again
  timer = setTimeout(() => search({ typing: true, keep: true }), DEBOUNCE);
}

function listen() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    search({ typing: true });
    completed();
  });
  for (const id of ["words", "exclude"]) {
    byId(id).addEventListener("input", typed);
    byId(id).addEventListener("change", completed);
  }
  byId("chips").addEventListener("click", () => {
    query.setLike(null);
    query.setImage(null);
    byId("words").focus();
    search();
  });
  byId("typed").addEventListener("click", ({ target }) => {
    const chip = target.closest("[data-at]");
    if (!chip) return;
    query.dropAt(Number(chip.dataset.at));
    search();
    byId("words").focus();
  });
  byId("help").addEventListener("click", ({ target }) => {
    const example = target.closest("[data-insert]");
    if (!example) return;
    byId("help").hidePopover();
    byId("words").value = `${byId("words").value} ${example.dataset.insert}`.trim();
    byId("words").focus();
  });
  placeBelow(byId("help"), byId("help-open"), 24);
  byId("rest-show").addEventListener("click", () => dropConditions("relevance"));
  byId("to-top").addEventListener("click", () => {
    scrollTo(0, 0);
    byId("words").focus();
  });
  for (const id of ["type", "group", "good", "rerank", "sort"]) byId(id).addEventListener("change", () => search());
  listenForKeys(grid);
  listenForAbout();
  listenForImages((file) => {
    viewer.close();
    query.setImage(file);
    byId("words").value = "";
    search();
  });
}

listen();
url.read(); // before any request: the user may start typing
begin();
