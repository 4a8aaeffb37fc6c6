// Filters typed into the search box, such as folder:2024/beach or place:"New York". The server reads the same syntax.

export const FILTERS = ["name", "folder", "camera", "place", "before", "after", "type"];
const KINDS = { image: "image", images: "image", photo: "image", photos: "image", video: "video", videos: "video" };
const DATE = /^\d{4}(-\d{2}(-\d{2})?)?$/;
const PROBLEMS = {
  type: "image or video",
  before: "a date such as 2024, 2024-05 or 2024-05-31",
  after: "a date such as 2024, 2024-05 or 2024-05-31",
};
const QUOTED = '"([^"]*)"?';
const TOKEN = new RegExp(`(${FILTERS.join("|")}):(?:${QUOTED}|(\\S*))|${QUOTED}|-${QUOTED}|\\S+`, "gi");

// The text as it is searched for, the words to exclude, and the filters. A filter that is not complete yet is named in
// "problem" and has no effect.
export function parse(text) {
  const wanted = [];
  const excluded = [];
  const filters = [];
  for (const match of text.matchAll(TOKEN)) {
    const [token, name, quoted, plain, , phrase] = match;
    if (name !== undefined) filters.push(filter(token, match.index, name.toLowerCase(), (quoted ?? plain).trim()));
    else if (phrase !== undefined) excluded.push(phrase.trim());
    else if (/^-[^-]/.test(token)) excluded.push(token.slice(1));
    else wanted.push(token);
  }
  return { wanted: wanted.join(" "), excluded: excluded.filter(Boolean), filters };
}

function filter(source, at, name, given) {
  const value = name === "type" ? (KINDS[given.toLowerCase()] ?? "") : given;
  const valid = name === "before" || name === "after" ? DATE.test(value) : value !== "";
  return { name, value: given, source, at, sent: valid ? value : null, problem: valid ? null : (PROBLEMS[name] ?? "a value") };
}

// The text without one of its filters.
export function without(text, { at, source }) {
  return `${text.slice(0, at)}${text.slice(at + source.length)}`.replace(/\s+/g, " ").trim();
}

export const written = (name, value) => `${name}:${/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value}`;
