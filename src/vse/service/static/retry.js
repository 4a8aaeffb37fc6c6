// When to retry a request that failed because the server was busy or unreachable.

const PAUSES = [1000, 2500]; // milliseconds before an image is loaded again
const DEFAULT_PAUSE = 2000; // milliseconds before a server that did not respond is tried again
const TEMPORARY = [429, 502, 503, 504]; // the last three also from a proxy whose service is starting
const attempts = new WeakMap();

// The pause before a retry in milliseconds, or null if the request would fail again.
export function pauseAfter({ name, status, retryAfter }) {
  if (name === "AbortError" || (status !== undefined && !TEMPORARY.includes(status))) return null;
  return retryAfter > 0 ? 1000 * retryAfter : DEFAULT_PAUSE;
}

// Called when an image failed to load. The browser does not tell why, so missing files are retried as well.
export function retryImage(image, missing) {
  const before = attempts.get(image) ?? 0;
  if (before === PAUSES.length) {
    missing();
    return;
  }
  attempts.set(image, before + 1);
  setTimeout(() => image.isConnected && image.setAttribute("src", image.getAttribute("src")), PAUSES[before]);
}
