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
    this.found = words.length ? this.find(words) : [];
    this.at = 0;
    this.list.hidden = !words.length;
    this.app.light(this.found);
    this.render();
  }

  /** The items that have all words; those that are called by one come first. */
  find(words) {
    const { items, texts } = this.index();
    const ranked = [[], [], []];
    const [first, ...rest] = [...words].sort((p, q) => q.length - p.length);
    for (let i = 0; i < items.length; i++) {
      if (texts[i].includes(first) && rest.every((w) => texts[i].includes(w))) ranked[rank(items[i], words)].push(items[i]);
    }
    return ranked.flat();
  }

  /** The text of every item of the tree, made once; `budget` milliseconds at a time if there is no hurry. */
  index(budget = Infinity) {
    const { tree } = this.app;
    if (this.known?.tree !== tree) this.known = { tree, items: itemsOf(tree), texts: [], words: new Map() };
    const { items, texts, words } = this.known;
    const end = performance.now() + budget;
    for (let i = texts.length; i < items.length; i++) {
      texts.push(textOf(this.app.data, items[i], words));
      if (i % 500 === 0 && performance.now() > end) break;
    }
    return this.known;
  }

  /** Make the texts while nobody waits. */
  prepare() {
    const idle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 50));
    const step = () => {
      const { items, texts } = this.index(12);
      if (texts.length < items.length) idle(step);
    };
    idle(step);
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

/** Groups and leaves, in order of execution. */
function itemsOf(tree) {
  const groups = [...tree.groups.values()].filter((group) => group.parent);
  return [...groups, ...tree.leaves].sort((p, q) => p.order - q.order);
}

/** What an item can be found by; texts of what many share are kept in `words`. */
function textOf(data, item, words) {
  const once = (key, make) => {
    if (!words.has(key)) words.set(key, make(key));
    return words.get(key);
  };
  const r = item.record;
  const path = item.parent ? once(item.parent, (p) => p.ancestors().map((g) => g.title).reverse().join(".").toLowerCase()) : "";
  const of = `${item.title ?? ""} ${item.of ?? ""}`;
  if (!r) return `${of} ${path}`.toLowerCase();
  const types = r.types ? once(r.types, (t) => t.join(" ").toLowerCase()) : "";
  const attrs = r.attrs ? once(r.attrs, (a) => Object.entries(a).map(([k, v]) => `${k}=${v}`).join(" ").toLowerCase()) : "";
  const at = r.at ? once(r.at, (a) => `${data.sources[a[0]].name}:${a[1]}`.toLowerCase()) : "";
  return `${r.op} ${of}`.toLowerCase() + ` ${path} ${types} ${attrs} ${at} ${r.part ?? ""}`;
}

/** What is called by the word comes before what has it somewhere. */
function rank(item, words) {
  const name = (item.record?.op ?? item.title).toLowerCase();
  if (words.some((w) => name === w)) return 0;
  return words.some((w) => name.startsWith(w)) ? 1 : 2;
}
