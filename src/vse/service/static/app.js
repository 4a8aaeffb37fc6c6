// The page: from what is typed to what is shown.

import { describe, listenForAbout } from "./about.js";
import { Address } from "./address.js";
import { forget, get, post } from "./api.js";
import { Dates } from "./dates.js";
import { byId } from "./dom.js";
import { listenForKeys } from "./keys.js";
import { Lock } from "./lock.js";
import { listenForPictures } from "./pictures.js";
import { Question } from "./question.js";
import { pauseAfter } from "./retry.js";
import { complain, tellBrowsing, tellSearch } from "./status.js";
import { Viewer } from "./viewer.js";
import { Wall } from "./wall.js";

const PAUSE = 130; // milliseconds without a key before a search begins
const PATIENCE = 600; // milliseconds that results stay when half a word finds nothing
const SLOW = 180; // milliseconds after which an answer is waited for visibly
const PAGE = 48;
const HELP = "Other words or fewer filters may help.";
const UNREAD = "The model knows none of these words.";
const FILL = "Add the files of a folder with: vse index FOLDER --into NAME";

const question = new Question(new Dates(() => ask()));
const address = new Address(question, (same) => {
  if (!same || address.opened === null) viewer.close();
  if (same) reopen();
  else ask({ write: false });
});
const wall = new Wall((index) => {
  address.enter(wall.results[index].id);
  viewer.open(wall.results, index, shown);
});
const viewer = new Viewer({
  renew: async (asked) => {
    if (asked !== shown) return false;
    forget();
    question.queryId = null;
    asked.queryId = (await request()).found.query_id;
    return true;
  },
  like: ({ id, thumbnail }) => {
    question.setLike({ id, thumbnail });
    byId("words").value = "";
    ask();
  },
  left: () => address.leave(),
  closed: (result) => wall.focusOn(result),
});
const lock = new Lock({
  opened: begin,
  refused: () => complain("This collection is locked. Any search asks for its key again."),
});
let shown = { path: "items", parameters: [], queryId: null };
let collection = null; // once it has been described
let timer = 0;
let emptying = 0;
let introducing = 0;
let running = null;

async function ask({ write = true, typing = false, patient = false } = {}) {
  clearTimeout(timer);
  clearTimeout(emptying);
  running?.abort();
  const mine = (running = new AbortController());
  question.show();
  if (write) address.write(typing);
  const slow = setTimeout(() => document.body.classList.add("busy"), SLOW);
  try {
    const answer = await request(mine.signal);
    if (mine !== running) return;
    if (question.picture) question.queryId = answer.found.query_id;
    const waits = patient && !answer.found.results.length && wall.results.length > 0;
    if (waits) emptying = setTimeout(() => show(answer), PATIENCE);
    else show(answer);
    document.body.classList.toggle("busy", waits);
  } catch (problem) {
    if (mine !== running) return;
    document.body.classList.remove("busy");
    refused(problem);
  } finally {
    clearTimeout(slow);
  }
}

function show({ found, path, parameters }) {
  shown = { path, parameters, queryId: found.query_id ?? null };
  document.body.classList.remove("busy");
  wall.show(found.results);
  tell(found);
  scrollTo(0, 0);
  reopen();
}

// The result that the present entry of the history has open: after a reload, and on the way forward.
function reopen() {
  if (address.opened === null || viewer.isOpen) return;
  const index = wall.results.findIndex(({ id }) => id === address.opened);
  if (index < 0) address.leave();
  else viewer.open(wall.results, index, shown);
}

async function request(signal) {
  if (!question.asks) {
    const parameters = question.filters();
    return { path: "items", parameters, found: await get("items", [...parameters, ["k", PAGE]], { signal }) };
  }
  if (question.picture && !question.queryId) {
    const form = question.form();
    form.append("k", PAGE);
    const found = await post("search", form, { signal });
    return { path: "search", parameters: question.parameters(found.query_id), found };
  }
  const parameters = question.parameters();
  const found = await get("search", [...parameters, ["k", PAGE]], { signal, keep: true });
  return { path: "search", parameters, found };
}

async function more() {
  if (byId("more").getAttribute("aria-disabled") === "true") return;
  const { path, parameters } = shown;
  const first = wall.results.length;
  byId("more").setAttribute("aria-disabled", true); // one that is disabled would lose the focus
  try {
    const found = await get(path, [...parameters, ["k", PAGE], ["offset", first]]);
    if (shown.parameters !== parameters) return;
    const focused = document.activeElement === byId("more");
    wall.append(found.results);
    tell(found);
    if (focused) wall.focus(first);
  } catch (problem) {
    if (shown.parameters === parameters) refused(problem, () => shown.parameters === parameters && more());
  } finally {
    byId("more").setAttribute("aria-disabled", false);
  }
}

function tell(found) {
  const browsing = shown.path === "items";
  byId("more").hidden = !found.more;
  if (browsing) tellBrowsing(wall.results, question.parts().unwanted);
  else tellSearch(found, wall.results);
  sayNothing();
  if (collection?.files === 0) introduce(); // some may have been indexed since
}

function sayNothing() {
  if (wall.results.length) return;
  if (collection?.files === 0) wall.say("Nothing is indexed yet", FILL);
  else if (shown.path === "items") wall.say("Nothing here", HELP);
  else wall.say("Nothing found", shown.queryId === null ? UNREAD : HELP);
}

function refused(problem, again = () => ask({ write: false })) {
  const pause = pauseAfter(problem);
  if (problem.status === 401) lock.ask();
  else if (problem.status === 404 && question.picture && question.queryId) {
    question.queryId = null; // the server has forgotten the picture: it is sent again
    ask({ write: false });
  } else if (pause !== null) {
    const why = problem.status === undefined ? "does not answer" : `cannot answer now (${problem.message})`;
    complain(`The server ${why}. It is asked again until it does.`);
    timer = setTimeout(again, pause);
  } else if (problem.name !== "AbortError") {
    if (problem.status === 422) nothing(); // what is shown belongs to another question
    complain(problem.message);
  }
}

function nothing() {
  shown = { path: "items", parameters: [], queryId: null };
  wall.show([]);
  byId("more").hidden = true;
}

// A page that has just been opened, or unlocked. Results do not wait for what is told about the collection.
function begin() {
  if (collection === null) introduce();
  ask({ write: false });
}

async function introduce() {
  clearTimeout(introducing);
  try {
    collection = await get("collection");
  } catch (problem) {
    const pause = pauseAfter(problem);
    if (pause !== null) introducing = setTimeout(introduce, pause);
    else if (problem.status !== 401) complain(problem.message); // results are locked as well, and ask for the key
    return;
  }
  document.title = `${collection.name} · vse`;
  describe(collection);
  byId("words").disabled = !collection.searches_text;
  if (!collection.searches_text) byId("words").placeholder = "This model has no words: search with a picture";
  if (wall.says) sayNothing();
}

function changed() {
  question.queryId = null; // the words beside a picture belong to its vector
  clearTimeout(timer);
  clearTimeout(emptying); // the next answer may have results again
  timer = setTimeout(() => ask({ typing: true, patient: true }), PAUSE);
}

function listen() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask({ typing: true });
    address.seal();
  });
  for (const id of ["words", "exclude"]) {
    byId(id).addEventListener("input", changed);
    byId(id).addEventListener("change", () => address.seal());
  }
  byId("chips").addEventListener("click", () => {
    question.setLike(null);
    question.setPicture(null);
    byId("words").focus();
    ask();
  });
  for (const id of ["type", "folder", "group", "sure"]) byId(id).addEventListener("change", () => ask());
  byId("more").addEventListener("click", more);
  listenForKeys(wall);
  listenForAbout();
  listenForPictures((file) => {
    viewer.close();
    question.setPicture(file);
    byId("words").value = "";
    ask();
  });
}

listen();
address.read(); // before anything is waited for, in which time somebody may type
begin();
