// The tree of a stage: its nodes in groups (part, module, region, kernel), and the links between them.

const KINDS = { P: "part", M: "module", R: "region", B: "body", K: "kernel", L: "line" };
const MANY = 14; // nodes of a group from which on those of a line are put together
const FEW = 5; // nodes of a line that are worth it

/** What stands in a group: a leaf has a record, a group has children. */
class Item {
  constructor(id, parent) {
    this.id = id;
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : 0;
  }

  get isGroup() {
    return this.children !== undefined;
  }

  /** This item and those around it, the innermost first, without the root. */
  ancestors() {
    const found = [];
    for (let item = this; item.parent; item = item.parent) found.push(item);
    return found;
  }
}

function makeGroup(id, parent, kind, title) {
  const group = new Item(id, parent);
  Object.assign(group, { kind, title, children: [], leaves: 0, order: Infinity, record: null, open: false });
  return group;
}

/**
 * The tree of one stage.
 *
 * @param {object} data what Python wrote into the page
 * @param {number} stage number of the stage
 * @param {boolean} byKernel whether kernels are groups, inside of modules
 */
export function buildTree(data, stage, byKernel) {
  const tree = new Tree(data, byKernel);
  for (const number of data.stages[stage].records) {
    const { values, path } = data.records[number];
    if (values) tree.paths.set(values[0], path ?? []);
    for (const part of path ?? []) if (part[0] === "R") tree.regions.add(Number(part.slice(1)));
  }
  for (const number of data.stages[stage].records) tree.add(number);
  tree.finish();
  return tree;
}

export class Tree {
  constructor(data, byKernel) {
    this.data = data;
    this.root = makeGroup("", null, "root", data.name);
    this.groups = new Map([["", this.root]]);
    this.leaves = [];
    this.items = new Map();
    this.makers = new Map(); // by number of a value
    this.kernelOf = new Map();
    this.kernels = data.kernels ?? [];
    this.kernels.forEach((k, i) => k.values.forEach((v) => this.kernelOf.set(v, this.kernelOf.get(v) ?? i)));
    this.paths = new Map(); // by the first value of a node, the groups around it
    this.regions = new Set(); // first values of nodes with regions
    this.byKernel = byKernel;
  }

  /** Enter the record with a number. */
  add(number) {
    const record = this.data.records[number];
    const values = record.values ?? [];
    const group = this.groupAt(this.pathOf(record));
    let item;
    if (this.hasRegion(record)) {
      item = this.groupAt([...this.pathOf(record), `R${values[0]}`]);
      item.title = record.op;
      item.record = record;
    } else {
      item = new Item(leafId(record, number), group);
      item.record = record;
      item.order = this.leaves.length;
      group.children.push(item);
      this.leaves.push(item);
    }
    item.number = number;
    this.items.set(item.id, item);
    for (const value of values) if (record.kind !== "output") this.makers.set(value, item);
  }

  hasRegion(record) {
    return record.kind === "op" && this.regions.has(record.values[0]);
  }

  /** The groups around a record: those of its path, or the kernel it is in. */
  pathOf(record) {
    const path = record.path ?? [];
    if (!this.byKernel) return path;
    const kernel = this.kernelOf.get(record.values?.[0]);
    if (kernel === undefined || record.kind === "output" || this.hasRegion(record)) return path;
    return [...this.placeOfKernel(kernel), `K${kernel}`];
  }

  /** Where a kernel stands: in the groups that all of its nodes of its part are in. */
  placeOfKernel(number) {
    this.places ??= this.kernels.map((kernel) => {
      const paths = kernel.values.map((v) => this.paths.get(v)).filter(Boolean);
      const first = mostFrequent(paths.map((p) => p[0]));
      const [head, ...rest] = paths.filter((p) => p[0] === first);
      let shared = head?.length ?? 0;
      for (const p of rest) while (head.slice(0, shared).some((part, i) => part !== p[i])) shared -= 1;
      return (head ?? []).slice(0, shared);
    });
    return this.places[number];
  }

  groupAt(path) {
    const id = path.map((p) => `/${p}`).join("");
    const known = this.groups.get(id);
    if (known) return known;
    const parent = this.groupAt(path.slice(0, -1));
    const last = path[path.length - 1];
    const group = makeGroup(id, parent, KINDS[last[0]], last.slice(1));
    if (group.kind === "kernel") {
      group.kernel = this.kernels[Number(group.title)];
      group.title = `kernel ${group.kernel.number}`;
    }
    if (group.kind === "module") group.of = this.data.modules?.[moduleOf(path)];
    this.groups.set(id, group);
    this.items.set(id, group);
    parent.children.push(group);
    return group;
  }

  finish() {
    if (!this.byKernel) for (const group of [...this.groups.values()]) this.groupLines(group);
    this.simplify(this.root);
    this.count(this.root);
    this.link();
  }

  /** Put many nodes that no module holds together by the line of the source that they come from. */
  groupLines(group) {
    if (group.children.length <= MANY) return;
    const lines = new Map();
    for (const item of group.children) {
      if (item.isGroup || !item.record.at) continue;
      const line = item.record.at.slice(0, 2).join(":");
      lines.set(line, [...(lines.get(line) ?? []), item]);
    }
    const users = this.usersIn(group);
    const many = [...lines].filter(([, items]) => items.length >= FEW && !comesBack(items, users));
    const most = Math.max(0, ...many.map(([, items]) => items.length));
    const ops = group.children.filter((c) => !c.isGroup && c.record.kind === "op").length;
    const isWhole = group.kind !== "part" && most > 0.8 * ops; // all of it comes from one line
    if (many.length === 0 || isWhole) return;
    for (const [line, items] of many) {
      const [file, number] = line.split(":").map(Number);
      const inner = this.groupAt([...group.id.split("/").filter(Boolean), `L${line}`]);
      inner.title = this.lineText(file, number);
      inner.children.push(...items);
      for (const item of items) item.parent = inner;
      group.children = group.children.filter((item) => item.parent === group);
    }
  }

  /** By child of a group, the children that take something from it. */
  usersIn(group) {
    const childOf = (item) => {
      while (item && item.parent !== group) item = item.parent;
      return item;
    };
    const users = new Map(group.children.map((child) => [child, new Set()]));
    for (const child of group.children) {
      for (const leaf of [...this.leavesOf(child), child]) {
        for (const value of leaf.record?.inputs ?? []) users.get(childOf(this.makers.get(value)))?.add(child);
      }
    }
    return users;
  }

  lineText(file, number) {
    const source = this.data.sources[file];
    const text = (source.lines[number - source.first] ?? "").trim();
    return `${number}: ${text.length > 26 ? `${text.slice(0, 25)}…` : text}`;
  }

  /** Leave out groups that hold one thing alone: a module of a module joins its name. */
  simplify(group) {
    for (const child of [...group.children]) if (child.isGroup) this.simplify(child);
    group.children = group.children.map((child) => {
      if (!child.isGroup || child.children.length !== 1 || child.record) return child;
      const [only] = child.children;
      const joins = child.kind === "module" && only.isGroup && only.kind === "module";
      if (!joins && only.isGroup) return child;
      if (child.kind === "part" || child.kind === "body") return child;
      if (joins) only.title = `${child.title}.${only.title}`;
      if (child.kernel && !only.isGroup) only.kernel = child.kernel;
      this.dissolve(child, only, group);
      return only;
    });
  }

  dissolve(group, only, parent) {
    this.groups.delete(group.id);
    this.items.delete(group.id);
    only.parent = parent;
  }

  count(group) {
    group.depth = group.parent ? group.parent.depth + 1 : 0;
    group.part = group.record?.part ?? (group.kind === "part" ? group.title : group.parent?.part);
    for (const child of group.children) {
      if (child.isGroup) this.count(child);
      child.depth = group.depth + 1;
      group.leaves += child.isGroup ? child.leaves : child.record.kind === "op" ? 1 : 0;
      group.order = Math.min(group.order, child.order);
    }
    const parts = new Set(group.children.map((child) => child.part ?? child.record?.part));
    if (!group.part && parts.size === 1) [group.part] = parts;
  }

  /** Enter every link between two items into the groups that it passes: as a link, or as an entry or exit. */
  link() {
    for (const group of [this.root, ...this.groups.values()]) {
      group.links = new Map();
      group.ins = new Map();
      group.outs = new Map();
    }
    this.edges = [];
    this.cross = [];
    for (const item of this.items.values()) {
      for (const value of new Set(item.record?.inputs ?? [])) {
        const maker = this.makers.get(value);
        if (maker && maker !== item) this.linkItems(maker, item, value);
      }
    }
    this.users = new Map();
    for (const edge of this.edges) {
      if (!this.users.has(edge.from)) this.users.set(edge.from, []);
      this.users.get(edge.from).push(edge);
    }
  }

  linkItems(from, to, value) {
    if (to.ancestors().includes(from)) return; // a value given to a loop, seen from inside
    const edge = { from, to, value };
    this.edges.push(edge);
    const above = from.ancestors();
    const below = to.ancestors();
    let shared = 0;
    while (
      shared < Math.min(above.length, below.length) &&
      above[above.length - 1 - shared] === below[below.length - 1 - shared]
    ) {
      shared += 1;
    }
    const [a, b] = [above[above.length - 1 - shared], below[below.length - 1 - shared]];
    if (!a || !b) return;
    if (a.kind === "part" && b.kind === "part") {
      this.cross.push(edge);
      return;
    }
    const group = a.parent;
    const key = `${a.id}|${b.id}`;
    if (!group.links.has(key)) group.links.set(key, { from: a, to: b, values: new Set() });
    group.links.get(key).values.add(value);
    for (const inner of above.slice(0, above.length - 1 - shared)) inner.parent.outs.set(value, inner);
    for (const inner of below.slice(0, below.length - 1 - shared)) {
      const ins = inner.parent.ins;
      if (!ins.has(value)) ins.set(value, new Set());
      ins.get(value).add(inner);
    }
  }

  /** The leaves in an item. */
  leavesOf(item) {
    if (!item.isGroup) return [item];
    return item.children.flatMap((child) => this.leavesOf(child));
  }

  /** What of an item can be seen: itself, or the outermost closed group around it. */
  visible(item) {
    let shown = item;
    for (let group = item.parent; group && group.parent; group = group.parent) if (!group.open) shown = group;
    return shown;
  }

  /** Open all groups around an item. */
  reveal(item) {
    let changed = false;
    for (let group = item.parent; group && group.parent; group = group.parent) {
      changed ||= !group.open;
      group.open = true;
    }
    return changed;
  }
}

/** Whether something goes from some items through others back to them: as one group they would be in a circle. */
function comesBack(items, users) {
  const inside = new Set(items);
  const seen = new Set();
  const queue = items.flatMap((item) => [...users.get(item)]).filter((item) => !inside.has(item));
  while (queue.length) {
    const item = queue.pop();
    if (seen.has(item)) continue;
    seen.add(item);
    for (const next of users.get(item)) {
      if (inside.has(next)) return true;
      queue.push(next);
    }
  }
  return false;
}

function mostFrequent(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}

/** The name of a module in its model. */
function moduleOf(path) {
  return path.filter((p) => p[0] === "M").map((p) => p.slice(1)).join(".");
}

function leafId(record, number) {
  if (record.kind === "output") return `o${record.inputs?.[0]}:${record.op}:${(record.path ?? []).join("/")}`;
  return record.values?.length ? `v${record.values[0]}` : `n${number}`;
}

/** Open groups of a tree from the outside in, while there is little to see: a first view that says something. */
export function openSome(tree, most) {
  tree.root.open = true;
  const tops = tree.root.children.filter((c) => c.kind === "part");
  for (const top of tops.length ? tops : [tree.root]) if (top.part !== "optimizer") openColumn(top, most);
}

function openColumn(top, most) {
  top.open = true;
  let seen = countOps(top);
  const queue = [...top.children];
  while (queue.length) {
    const group = queue.shift();
    if (!group.isGroup || isComposite(group) || seen + countOps(group) > most) continue;
    group.open = true;
    seen += countOps(group);
    queue.push(...group.children);
  }
}

const countOps = (group) => group.children.filter((c) => c.isGroup || c.record.kind === "op").length;
const isComposite = (group) => group.kind === "region" && Boolean(group.record?.attrs?.arguments);
