// The user's source beside the graph: each line knows its nodes, each node its line.

import { byId, fill, make } from "weft/dom.js";

const WORDS =
  /("""|''')|(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|class|return|if|elif|else|for|while|in|not|and|or|import|from|as|with|lambda|None|True|False|break|continue|pass|raise|yield|is|try|except|finally|global|nonlocal|assert|del|async|await)\b|\b(\d[\d_.]*(?:e[+-]?\d+)?)\b/g;
const CLASSES = ["st", "co", "st", "kw", "nu"];

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
    const known = new Map(); // nodes of one line share their place
    for (const item of tree.at) {
      const { at } = item.record;
      if (!at) continue;
      let items = known.get(at);
      if (!items) {
        const key = `${at[0]}:${at[1]}`;
        if (!this.nodes.has(key)) this.nodes.set(key, []);
        items = this.nodes.get(key);
        known.set(at, items);
      }
      items.push(item);
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
    const state = { quote: "" }; // of a string over several lines, the quotes that end it
    fill(this.lines, ...source.lines.map((text, i) => this.row(source.first + i, text, state)));
  }

  row(line, text, state) {
    const items = this.nodes.get(`${this.file}:${line}`);
    const parts = items ? [...new Set(items.map((i) => i.record.part || "forward"))] : [];
    const marks = make("em", {}, ...parts.slice(0, 3).map((p) => make("i", { class: p })));
    const click = items ? { class: "used", onclick: () => this.app.chooseLine(this.file, line, items) } : {};
    if (items) click.title = `${items.length} node${items.length === 1 ? "" : "s"}`;
    const row = make("div", { ...click, "data-line": line }, make("b", {}, String(line)), marks, colour(text, state));
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

  /** Show the function that a group comes from, with all lines that made nodes of it. */
  showGroup(tree, group) {
    const place = this.placeOf(tree, group);
    if (!place) return;
    this.show(place.file, place.define);
    for (const line of place.lines) this.rows.get(line)?.classList.add("lit");
    const last = this.rows.get(Math.max(...place.lines));
    const room = this.lines.clientHeight - 60;
    if (last && last.offsetTop - this.lines.offsetTop < this.lines.scrollTop + room) return;
    const first = this.rows.get(Math.min(...place.lines));
    if (last && first && last.offsetTop - first.offsetTop < room) this.lines.scrollTop = first.offsetTop - this.lines.offsetTop - 40;
  }

  /** Where a group comes from: the function that most of its own nodes stand in, where that begins, and the lines. */
  placeOf(tree, group) {
    const known = (group.place ??= findPlace(tree, group, this.app.data.sources) ?? null);
    return known;
  }

  clear() {
    for (const row of this.lines.querySelectorAll(".lit")) row.classList.remove("lit");
  }
}

/** The function that most nodes of a group come from: first those in it alone, then those of the groups in it. */
function findPlace(tree, group, sources) {
  const counts = new Map();
  const own = group.children.filter((c) => !c.isGroup && c.record.at);
  const end = Math.min(group.hi, group.lo + 2000); // of very many, the first tell
  const items = own.length ? own : tree.at.slice(group.lo, end);
  for (const { record } of items) {
    if (!record.at) continue;
    const [file, line, name] = record.at;
    const key = `${file}:${name}`;
    if (!counts.has(key)) counts.set(key, { file, name, lines: new Set(), count: 0 });
    counts.get(key).lines.add(line);
    counts.get(key).count += 1;
  }
  const [place] = [...counts.values()].sort((p, q) => q.count - p.count);
  if (!place) return null;
  const first = Math.min(...place.lines);
  return { ...place, define: defineLine(sources[place.file], place.name, first) };
}

/** The line at which a function begins; that of its first node where it is not found. */
function defineLine(source, name, line) {
  const start = new RegExp(`^\\s*(async\\s+)?def\\s+${String(name).replace(/\W/g, "\\$&")}\\b`);
  for (let i = line; i >= source.first && name; i--) if (start.test(source.lines[i - source.first] ?? "")) return i;
  return line;
}

/** A line with its words coloured; a string may have begun on a line before, and end on a later one. */
function colour(text, state) {
  const line = make("span");
  let last = 0;
  const until = (end, kind) => {
    if (end > last) line.append(kind ? make("span", { class: kind }, text.slice(last, end)) : text.slice(last, end));
    last = Math.max(last, end);
  };
  const closeString = (from) => {
    const end = text.indexOf(state.quote, from);
    until(end < 0 ? text.length : end + 3, "st");
    if (end >= 0) state.quote = "";
  };
  if (state.quote) closeString(0);
  for (const match of text.matchAll(WORDS)) {
    if (match.index < last) continue;
    until(match.index);
    if (match[1]) {
      state.quote = match[1];
      closeString(match.index + 3);
      continue;
    }
    const kind = CLASSES[match.slice(1).findIndex((part) => part !== undefined)];
    until(match.index + match[0].length, kind);
  }
  until(text.length);
  return line;
}
