// Search: by op, name, type, attributes, module and line.

import { byId, fill, make } from "weft/dom.js";
import { labelOf } from "weft/draw.js";

const MOST = 40;

export class Search {
  constructor(app) {
    this.app = app;
    this.input = byId("search");
    this.list = byId("found");
    this.input.addEventListener("input", () => this.run());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => (this.list.hidden = true), 150));
    this.input.addEventListener("focus", () => this.input.value && this.run());
  }

  run() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = words.length ? [...this.app.tree.items.values()].filter((i) => words.every((w) => text(this.app, i).includes(w))) : [];
    this.found = all.sort((p, q) => rank(p, words) - rank(q, words) || p.order - q.order);
    this.at = 0;
    this.list.hidden = !words.length;
    this.app.light(this.found);
    this.render();
  }

  render() {
    const rows = this.found.slice(0, MOST).map((item, i) =>
      make(
        "li",
        { "aria-selected": String(i === this.at), onmousedown: () => this.go(i) },
        make("b", {}, labelOf(item)[0]),
        make("small", {}, [item.record?.types?.[0], ...around(item)].filter(Boolean).join(" · ")),
      ),
    );
    const rest = this.found.length > MOST ? `${this.found.length - MOST} more` : this.found.length ? null : "nothing found";
    fill(this.list, ...rows, rest && make("li", {}, make("small", {}, rest)));
  }

  go(i) {
    const item = this.found[i];
    if (!item) return;
    this.at = i;
    this.app.choose(item, { reveal: true });
    this.app.light(this.found);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.found?.length) {
      this.at = (this.at + step + Math.min(MOST, this.found.length)) % Math.min(MOST, this.found.length);
      this.render();
      this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter") {
      this.go(this.at);
      this.list.hidden = true;
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.run();
      this.app.canvas.focus();
    }
    event.stopPropagation();
  }
}

/** The titles of the groups around an item, the outermost first. */
function around(item) {
  return item.ancestors().slice(1).reverse().map((g) => g.title);
}

const texts = new WeakMap();

function text(app, item) {
  if (!texts.has(item)) {
    const r = item.record ?? {};
    const at = r.at ? `${app.data.sources[r.at[0]].name}:${r.at[1]}` : "";
    const path = item.ancestors().map((g) => g.title).reverse().join(".");
    const attrs = Object.entries(r.attrs ?? {}).map(([k, v]) => `${k}=${v}`);
    texts.set(item, [r.op, item.title, item.of, path, ...(r.types ?? []), ...attrs, at, r.part].join(" ").toLowerCase());
  }
  return texts.get(item);
}

/** What is called by the word comes before what has it somewhere. */
function rank(item, words) {
  const name = (item.record?.op ?? item.title).toLowerCase();
  if (words.some((w) => name === w)) return 0;
  return words.some((w) => name.startsWith(w)) ? 1 : 2;
}
