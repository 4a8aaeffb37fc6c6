// The address of the page holds the question: a reload, a bookmark and the way back lead to the same results.
// A result that is open is an entry of its own above its question, so that a step back closes it.

const pictures = new Map(); // of this visit: an address cannot hold one, its entry in the history names it
const here = () => `${location.search} ${history.state?.picture ?? ""}`;

export class Address {
  // moved(same) is told of every step, and whether the question stayed the same.
  constructor(question, moved) {
    this.question = question;
    this.here = here();
    this.waiting = null; // what is to be written once a step back is done, which takes a moment
    history.scrollRestoration = "manual"; // or a step would scroll away from the picture that was seen last
    window.addEventListener("popstate", () => {
      const waiting = this.waiting ?? [];
      this.waiting = null;
      const same = here() === this.here;
      if (same) for (const write of waiting) write();
      else this.read();
      moved(same);
    });
  }

  // The id of the result that the present entry has open, unless it is being left.
  get opened() {
    return this.waiting ? null : (history.state?.opened ?? null);
  }

  // What is typed replaces what was typed before, so that a step back leaves out a question and not a letter.
  write(typing) {
    if (this.#waits(() => this.write(typing))) return;
    const query = this.question.toAddress();
    const picture = this.#named(this.question.picture?.blob);
    const asked = new URLSearchParams(location.search).toString();
    if (query === asked && picture === (history.state?.picture ?? null)) {
      this.leave();
      return;
    }
    const replaces = this.opened !== null || (typing && history.state?.typing);
    const address = query ? `?${query}` : location.pathname;
    history[replaces ? "replaceState" : "pushState"]({ typing, picture }, "", address);
    this.here = here();
  }

  // The question is settled: what is typed from now on is another one.
  seal() {
    if (this.#waits(() => this.seal())) return;
    if (history.state?.typing) history.replaceState({ ...history.state, typing: false }, "");
  }

  enter(id) {
    if (this.#waits(() => this.enter(id))) return;
    this.seal();
    history.pushState({ ...history.state, opened: id }, "");
  }

  leave() {
    if (this.opened === null) return;
    this.waiting = [];
    history.back();
  }

  read() {
    this.here = here();
    this.question.fromAddress(location.search);
    const blob = pictures.get(history.state?.picture);
    if (blob) this.question.setPicture(blob);
    this.question.show();
  }

  #waits(write) {
    this.waiting?.push(write);
    return this.waiting !== null;
  }

  #named(blob) {
    if (!blob) return null;
    for (const [name, known] of pictures) if (known === blob) return name;
    const name = `${Date.now()}-${pictures.size}`; // an earlier visit may have left entries in the history
    pictures.set(name, blob);
    return name;
  }
}
