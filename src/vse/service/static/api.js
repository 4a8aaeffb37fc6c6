// The HTTP interface. Answers are kept for a while, so that going back to a question is immediate.

const BASE = "api/v1/";
const KEPT = 60;
const KEPT_FOR = 300_000; // milliseconds: files may be added while the page is open
const answers = new Map();

export class Problem extends Error {
  constructor(status, detail, retryAfter) {
    super(detail);
    this.status = status;
    this.retryAfter = retryAfter; // seconds
  }
}

export async function get(path, parameters = [], { signal, keep = false } = {}) {
  const query = new URLSearchParams(parameters).toString();
  const address = BASE + path + (query ? `?${query}` : "");
  const known = keep ? recall(address) : undefined;
  if (known !== undefined) return known;
  const found = await read(await fetch(address, { signal }));
  if (keep) remember(address, found);
  return found;
}

export async function post(path, body, { signal } = {}) {
  return read(await fetch(BASE + path, { method: "POST", body, signal }));
}

export async function openSession(key) {
  const headers = { "Content-Type": "application/json" };
  await read(await fetch(`${BASE}session`, { method: "POST", headers, body: JSON.stringify({ key }) }));
}

export function forget() {
  answers.clear();
}

async function read(response) {
  if (response.status === 204) return null;
  if (response.ok) return response.json();
  let detail = `the server answered ${response.status}`;
  try {
    detail = (await response.json()).detail ?? detail;
  } catch {
    // not every error comes from the service itself
  }
  throw new Problem(response.status, detail, Number(response.headers.get("Retry-After")));
}

function recall(address) {
  const known = answers.get(address);
  if (known === undefined || performance.now() - known.since > KEPT_FOR) return undefined;
  answers.delete(address); // what was used last is forgotten last
  answers.set(address, known);
  return known.answer;
}

function remember(address, answer) {
  answers.delete(address);
  answers.set(address, { answer, since: performance.now() });
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}
