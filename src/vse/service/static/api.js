// Calls to the HTTP API. Some responses are cached for a while, so that going back to a query is instant.

const ROOT = "api/v1/";
const CACHE_SIZE = 60;
const CACHE_TIME = 300_000; // milliseconds: files may be added while the page is open
const cache = new Map(); // in LRU order

export class Problem extends Error {
  constructor(status, detail, retryAfter) {
    super(detail);
    this.status = status;
    this.retryAfter = retryAfter; // seconds
  }
}

let prefix = ROOT; // of the collection that is shown

// Without a name: the only collection, or the first one.
export function useCollection(name) {
  prefix = name ? `${ROOT}collections/${encodeURIComponent(name)}/` : ROOT;
  cache.clear();
}

export const base = () => prefix;

export async function get(path, parameters = [], { signal, cached = false, everywhere = false } = {}) {
  const search = new URLSearchParams(parameters).toString();
  const url = (everywhere ? ROOT : prefix) + path + (search ? `?${search}` : "");
  const known = cached ? lookUp(url) : undefined;
  if (known !== undefined) return known;
  const found = await read(await fetch(url, { signal }));
  if (cached) store(url, found);
  return found;
}

export async function post(path, body, { signal } = {}) {
  return read(await fetch(prefix + path, { method: "POST", body, signal }));
}

// Saves the response to a request as a file.
export async function download(path, wanted, name) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(prefix + path, { method: "POST", headers, body: JSON.stringify(wanted) });
  if (!response.ok) await read(response);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be reading it
}

export async function openSession(key) {
  const headers = { "Content-Type": "application/json" };
  await read(await fetch(`${ROOT}session`, { method: "POST", headers, body: JSON.stringify({ key }) }));
}

export function clearCache() {
  cache.clear();
}

async function read(response) {
  if (response.status === 204) return null;
  if (response.ok) return response.json();
  let detail = `the server responded with status ${response.status}`;
  try {
    detail = (await response.json()).detail ?? detail;
  } catch {
    // a proxy's error need not be JSON
  }
  throw new Problem(response.status, detail, Number(response.headers.get("Retry-After")));
}

function lookUp(url) {
  const entry = cache.get(url);
  if (entry === undefined || performance.now() - entry.since > CACHE_TIME) return undefined;
  cache.delete(url); // moves it to the end
  cache.set(url, entry);
  return entry.response;
}

function store(url, response) {
  cache.delete(url);
  cache.set(url, { response, since: performance.now() });
  if (cache.size > CACHE_SIZE) cache.delete(cache.keys().next().value);
}
