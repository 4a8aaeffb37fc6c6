// The page: reads the query, sends it, and shows the results.

import { describe, listenForAbout } from "./about.js";
import { clearCache, get, post } from "./api.js";
import { Dates } from "./dates.js";
import { byId } from "./dom.js";
import { Grid } from "./grid.js";
import { listenForImages } from "./images.js";
import { listenForKeys } from "./keys.js";
import { Login } from "./login.js";
import { Query } from "./query.js";
import { pauseAfter } from "./retry.js";
import { showBrowseStatus, showError, showSearchStatus } from "./status.js";
import { PageUrl } from "./url.js";
import { Viewer } from "./viewer.js";

const DEBOUNCE = 130; // milliseconds without a key press before a search starts
const KEEP_RESULTS = 600; // milliseconds that results stay when an incomplete word finds nothing
const SLOW = 180; // milliseconds after which the page shows that it is waiting
const PAGE_SIZE = 48;
const HINT = "Try other words or fewer filters.";
const UNKNOWN_WORDS = "The model does not know any of these words.";
const HOW_TO_INDEX = "Add a folder with: vse index FOLDER --into NAME";

const query = new Query(new Dates(() => search()));
const url = new PageUrl(query, (same) => {
  if (!same || url.opened === null) viewer.close();
  if (same) reopen();
  else search({ write: false });
});
const grid = new Grid((index) => {
  url.enter(grid.results[index].id);
  viewer.open(grid.results, index, shown);
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
    search();
  },
  left: () => url.leave(),
  closed: (result) => grid.focusOn(result),
});
const login = new Login({
  unlocked: begin,
  dismissed: () => showError("This collection is locked. Search again to enter the key."),
});
let shown = { path: "items", parameters: [], queryId: null };
let collection = null; // until it is loaded
let timer = 0;
let emptying = 0;
let introducing = 0;
let running = null;

async function search({ write = true, typing = false, keep = false } = {}) {
  clearTimeout(timer);
  clearTimeout(emptying);
  running?.abort();
  const mine = (running = new AbortController());
  query.show();
  if (write) url.write(typing);
  const slow = setTimeout(() => document.body.classList.add("busy"), SLOW);
  try {
    const response = await request(mine.signal);
    if (mine !== running) return;
    if (query.image) query.queryId = response.found.query_id;
    const waits = keep && !response.found.results.length && grid.results.length > 0;
    if (waits) emptying = setTimeout(() => show(response), KEEP_RESULTS);
    else show(response);
    document.body.classList.toggle("busy", waits);
  } catch (problem) {
    if (mine !== running) return;
    document.body.classList.remove("busy");
    failed(problem);
  } finally {
    clearTimeout(slow);
  }
}

function show({ found, path, parameters }) {
  shown = { path, parameters, queryId: found.query_id ?? null };
  document.body.classList.remove("busy");
  grid.show(found.results);
  showStatus(found);
  scrollTo(0, 0);
  reopen();
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
    return { path: "items", parameters, found: await get("items", [...parameters, ["k", PAGE_SIZE]], { signal }) };
  }
  if (query.image && !query.queryId) {
    const form = query.form();
    form.append("k", PAGE_SIZE);
    const found = await post("search", form, { signal });
    return { path: "search", parameters: query.parameters(found.query_id), found };
  }
  const parameters = query.parameters();
  const found = await get("search", [...parameters, ["k", PAGE_SIZE]], { signal, cached: true });
  return { path: "search", parameters, found };
}

async function more() {
  if (byId("more").getAttribute("aria-disabled") === "true") return;
  const { path, parameters } = shown;
  const first = grid.results.length;
  byId("more").setAttribute("aria-disabled", true); // not disabled, which would lose the focus
  try {
    const found = await get(path, [...parameters, ["k", PAGE_SIZE], ["offset", first]]);
    if (shown.parameters !== parameters) return;
    const focused = document.activeElement === byId("more");
    grid.append(found.results);
    showStatus(found);
    if (focused) grid.focus(first);
  } catch (problem) {
    if (shown.parameters === parameters) failed(problem, () => shown.parameters === parameters && more());
  } finally {
    byId("more").setAttribute("aria-disabled", false);
  }
}

function showStatus(found) {
  const browsing = shown.path === "items";
  byId("more").hidden = !found.more;
  if (browsing) showBrowseStatus(grid.results, query.parts().excluded);
  else showSearchStatus(found, grid.results);
  showEmpty();
  if (collection?.files === 0) introduce(); // files may have been indexed since
}

function showEmpty() {
  if (grid.results.length) return;
  if (collection?.files === 0) grid.showMessage("This collection is empty", HOW_TO_INDEX);
  else if (shown.path === "items") grid.showMessage("No files", HINT);
  else grid.showMessage("No results", shown.queryId === null ? UNKNOWN_WORDS : HINT);
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
    if (problem.status === 422) clear(); // what is shown belongs to another query
    showError(problem.message);
  }
}

function clear() {
  shown = { path: "items", parameters: [], queryId: null };
  grid.show([]);
  byId("more").hidden = true;
}

// Called when the page is opened or unlocked. Results do not wait for the description of the collection.
function begin() {
  if (collection === null) introduce();
  search({ write: false });
}

async function introduce() {
  clearTimeout(introducing);
  try {
    collection = await get("collection");
  } catch (problem) {
    const pause = pauseAfter(problem);
    if (pause !== null) introducing = setTimeout(introduce, pause);
    else if (problem.status !== 401) showError(problem.message); // on 401 the search asks for the key
    return;
  }
  document.title = `${collection.name} · vse`;
  describe(collection);
  byId("words").disabled = !collection.searches_text;
  if (!collection.searches_text) byId("words").placeholder = "This model does not read text: search by image";
  const { evidence, confidence } = collection.model.capabilities;
  viewer.setEvidence(evidence);
  byId("key-why").hidden = !evidence && !collection.videos;
  if (query.setConfidence(confidence)) search({ write: false });
  if (grid.isEmpty) showEmpty();
}

function changed() {
  query.queryId = null; // an image is encoded together with the text
  clearTimeout(timer);
  clearTimeout(emptying); // the next response may have results again
  timer = setTimeout(() => search({ typing: true, keep: true }), DEBOUNCE);
}

function listen() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    search({ typing: true });
    url.seal();
  });
  for (const id of ["words", "exclude"]) {
    byId(id).addEventListener("input", changed);
    byId(id).addEventListener("change", () => url.seal());
  }
  byId("chips").addEventListener("click", () => {
    query.setLike(null);
    query.setImage(null);
    byId("words").focus();
    search();
  });
  for (const id of ["type", "folder", "group", "sure"]) byId(id).addEventListener("change", () => search());
  byId("more").addEventListener("click", more);
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
