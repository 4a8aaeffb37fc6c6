// What can be typed into the search box beside a description: filters such as folder:2024/beach or place:"New York",
// "exact words", and -word to exclude. The server reads the same syntax.

export const FILTERS = ["name", "folder", "camera", "place", "before", "after", "type"];
const KINDS = { image: "image", images: "image", photo: "image", photos: "image", video: "video", videos: "video" };
const DATE = /^\d{4}(-\d{1,2}(-\d{1,2})?)?$/;
const CURLY = /[“”„‟«»＂]/g; // as phones type them
const WORD = /[\p{L}\p{N}]/u;
const PROBLEMS = {
  type: "expected image or video",
  before: "expected a date such as 2024, 2024-05 or 2024-05-31",
  after: "expected a date such as 2024, 2024-05 or 2024-05-31",
};
const QUOTED = '"([^"]*)"?';
const TOKEN = new RegExp(`(${FILTERS.join("|")}):(?:${QUOTED}|(\\S*))|${QUOTED}|-${QUOTED}|\\S+`, "gi");

// The text to search for, and the other tokens in order: filters, "words" for quoted ones, and "exclude". A token that
// is not complete yet has a "problem" and sends nothing.
export function parse(text) {
  const wanted = [];
  const tokens = [];
  for (const match of text.replace(CURLY, '"').matchAll(TOKEN)) {
    const [source, name, quoted, plain, phrase, excluded] = match;
    const token = (kind, value) => tokens.push({ name: kind, value, source, at: match.index, ...checked(kind, value) });
    if (name !== undefined) token(name.toLowerCase(), (quoted ?? plain).trim());
    else if (excluded !== undefined) token("exclude", excluded.trim());
    else if (/^-[^-]/.test(source)) token("exclude", source.slice(1));
    else if (phrase === undefined) wanted.push(source);
    else if (phrase.trim()) {
      if (WORD.test(phrase)) token("words", phrase.trim());
      wanted.push(phrase.trim()); // the model reads them as well
    }
  }
  return { wanted: wanted.join(" "), tokens };
}

function checked(name, given) {
  const value = name === "type" ? (KINDS[given.toLowerCase()] ?? "") : given;
  const valid = name === "before" || name === "after" ? DATE.test(value) : value !== "";
  return valid ? { sent: value, problem: null } : { sent: null, problem: PROBLEMS[name] ?? "expected a value" };
}

// The text without one of its tokens, or with another text in its place.
export function without(text, { at, source }, instead = "") {
  return `${text.slice(0, at)}${instead}${text.slice(at + source.length)}`.replace(/\s+/g, " ").trim();
}

export const written = (name, value) => `${name}:${/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value}`;
