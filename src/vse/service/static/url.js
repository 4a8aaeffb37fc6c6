// The page's URL holds the query: a reload, a bookmark and the back button lead to the same results.
// An open result is a history entry of its own, so that going back closes it.

const images = new Map(); // uploaded in this session: a URL cannot hold one, its history entry refers to it by name
const current = () => `${location.search} ${history.state?.image ?? ""}`;

export class PageUrl {
  // onMove(same) is called after each history step; same tells whether the query stayed the same.
  constructor(query, onMove) {
    this.query = query;
    this.current = current();
    this.pending = null; // writes to do once a step back has completed, which is asynchronous
    history.scrollRestoration = "manual"; // or a step would scroll away from the image that was viewed last
    window.addEventListener("popstate", () => {
      const pending = this.pending ?? [];
      this.pending = null;
      const same = current() === this.current;
      if (same) for (const write of pending) write();
      else this.read();
      onMove(same);
    });
  }

  // The id of the result that is open in the current entry, unless it is being left.
  get opened() {
    return this.pending ? null : (history.state?.opened ?? null);
  }

  // Typing replaces the entry of what was typed before: going back undoes a query, not a letter.
  write(typing) {
    if (this.#postponed(() => this.write(typing))) return;
    const search = this.query.toUrl();
    const image = this.#nameOf(this.query.image?.blob);
    const before = new URLSearchParams(location.search).toString();
    if (search === before && image === (history.state?.image ?? null)) {
      this.leave();
      return;
    }
    const replaces = this.opened !== null || (typing && history.state?.typing);
    const url = search ? `?${search}` : location.pathname;
    history[replaces ? "replaceState" : "pushState"]({ typing, image }, "", url);
    this.current = current();
  }

  // Where the user is in the results, for the way back and a reload.
  remember(place) {
    if (!this.pending) history.replaceState({ ...history.state, ...place }, "");
  }

  // {top, count}: the position, and the number of results that were loaded.
  get place() {
    return { top: history.state?.top ?? 0, count: history.state?.count ?? 0 };
  }

  // The query is complete: what is typed from now on is another one.
  seal() {
    if (this.#postponed(() => this.seal())) return;
    if (history.state?.typing) history.replaceState({ ...history.state, typing: false }, "");
  }

  enter(id) {
    if (this.#postponed(() => this.enter(id))) return;
    this.seal();
    history.pushState({ ...history.state, opened: id }, "");
  }

  leave() {
    if (this.opened === null) return;
    this.pending = [];
    history.back();
  }

  read() {
    this.current = current();
    this.query.fromUrl(location.search);
    const blob = images.get(history.state?.image);
    if (blob) this.query.setImage(blob);
    this.query.show();
  }

  #postponed(write) {
    this.pending?.push(write);
    return this.pending !== null;
  }

  #nameOf(blob) {
    if (!blob) return null;
    for (const [name, known] of images) if (known === blob) return name;
    const name = `${Date.now()}-${images.size}`; // unique: the history may hold entries of an earlier session
    images.set(name, blob);
    return name;
  }
}
