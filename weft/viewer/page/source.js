// The user's source beside the graph: each line knows its nodes, each node its line.

import { byId, fill, make } from "weft/dom.js";

const WORDS =
  /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|class|return|if|elif|else|for|while|in|not|and|or|import|from|as|with|lambda|None|True|False|break|continue|pass|raise|yield|is|try|except|finally|global|nonlocal|assert|del|async|await)\b|\b(\d[\d_.]*(?:e[+-]?\d+)?)\b/g;
const CLASSES = ["co", "st", "kw", "nu"];

export class Source {
  constructor(app, tabs, lines) {
    this.app = app;
    this.tabs = tabs;
    this.lines = lines;
    this.file = -1;
    this.rows = new Map();
  }

  /** Note which lines have nodes in the tree that is shown. */
  index(tree) {
    this.nodes = new Map();
    for (const item of tree.items.values()) {
      if (!item.record?.at) continue;
      const key = item.record.at.slice(0, 2).join(":");
      if (!this.nodes.has(key)) this.nodes.set(key, []);
      this.nodes.get(key).push(item);
    }
    const counts = new Map();
    for (const [key, items] of this.nodes) {
      const file = Number(key.split(":")[0]);
      counts.set(file, (counts.get(file) ?? 0) + items.length);
    }
    this.files = [...counts].sort((a, b) => b[1] - a[1]).map(([file]) => file);
    if (!this.files.includes(this.file)) this.file = this.files[0] ?? -1;
    byId("source").hidden = this.files.length === 0;
    this.render();
  }

  render() {
    const { sources } = this.app.data;
    fill(
      this.tabs,
      ...this.files.slice(0, 8).map((file) =>
        make(
          "button",
          {
            role: "tab",
            "aria-selected": String(file === this.file),
            title: sources[file].path,
            onclick: () => {
              this.file = file;
              this.render();
            },
          },
          sources[file].name,
        ),
      ),
    );
    this.rows = new Map();
    const source = sources[this.file];
    if (!source) return;
    fill(this.lines, ...source.lines.map((text, i) => this.row(source.first + i, text)));
  }

  row(line, text) {
    const items = this.nodes.get(`${this.file}:${line}`);
    const parts = items ? [...new Set(items.map((i) => i.record.part || "forward"))] : [];
    const marks = make("em", {}, ...parts.slice(0, 3).map((p) => make("i", { class: p })));
    const click = items ? { class: "used", onclick: () => this.app.chooseLine(this.file, line, items) } : {};
    if (items) click.title = `${items.length} node${items.length === 1 ? "" : "s"}`;
    const row = make("div", { ...click, "data-line": line }, make("b", {}, String(line)), marks, colour(text));
    this.rows.set(line, row);
    return row;
  }

  /** Highlight a line, and bring it into view. */
  show(file, line, scroll = true) {
    if (file !== this.file) {
      this.file = file;
      this.render();
    }
    this.clear();
    const row = this.rows.get(line);
    row?.classList.add("lit");
    if (!row || !scroll) return;
    const { offsetTop } = row;
    const { scrollTop, clientHeight } = this.lines;
    const top = offsetTop - this.lines.offsetTop;
    if (top < scrollTop + 20 || top > scrollTop + clientHeight - 40) this.lines.scrollTop = top - clientHeight / 2;
  }

  clear() {
    for (const row of this.lines.querySelectorAll(".lit")) row.classList.remove("lit");
  }
}

function colour(text) {
  const line = make("span");
  let last = 0;
  for (const match of text.matchAll(WORDS)) {
    const kind = CLASSES[match.slice(1).findIndex((part) => part !== undefined)];
    line.append(text.slice(last, match.index), make("span", { class: kind }, match[0]));
    last = match.index + match[0].length;
  }
  line.append(text.slice(last));
  return line;
}
