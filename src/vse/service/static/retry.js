// What a server refuses because it is busy, or does not answer at all, is asked for again.

const PAUSES = [1000, 2500]; // milliseconds before a picture is loaded again
const AGAIN = 2000; // milliseconds until a server that did not answer is asked again
const FOR_NOW = [429, 502, 503, 504]; // also of a proxy whose service is being started
const loads = new WeakMap();

// The pause before a request is worth repeating, or null where it would fail again.
export function pauseAfter({ name, status, retryAfter }) {
  if (name === "AbortError" || (status !== undefined && !FOR_NOW.includes(status))) return null;
  return retryAfter > 0 ? 1000 * retryAfter : AGAIN;
}

// Called when a picture has failed. The browser does not say why, so one that is missing is loaded again as well.
export function loadAgain(image, missing) {
  const before = loads.get(image) ?? 0;
  if (before === PAUSES.length) {
    missing();
    return;
  }
  loads.set(image, before + 1);
  setTimeout(() => image.isConnected && image.setAttribute("src", image.getAttribute("src")), PAUSES[before]);
}
