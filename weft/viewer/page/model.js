// The tree of a stage: its nodes in groups (part, module, region, kernel, fold), and where values go.

import { chunk, fold, groupLines, untie } from "weft/fold.js";
import { Net } from "weft/net.js";

const KINDS = { P: "part", M: "module", R: "region", B: "body", K: "kernel", L: "line" };

/** What stands in a group: a leaf has a record, a group has children. */
class Item {
  constructor(parent) {
    this.parent = parent;
    this.depth = 0;
    this.order = Infinity; // of the first leaf
    this.first = Infinity; // of the first op
    this.lo = this.hi = 0; // its leaves, in the order of the tree
    this.record = null;
    this.number = -1; // of the record
    this.children = undefined;
    this.name = undefined;
  }

  /** A name that stays the same from graph to graph. */
  get id() {
    this.name ??= leafId(this.record, this.number);
    return this.name;
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

  isIn(group) {
    return this.lo >= group.lo && this.hi <= group.hi;
  }
}

/** By number of a value, what makes it. */
class Makers {
  constructor() {
    this.list = [];
  }

  get(value) {
    return this.list[value];
  }

  has(value) {
    return this.list[value] !== undefined;
  }
}

function makeGroup(id, parent, kind, title) {
  const group = new Item(parent);
  return Object.assign(group, { name: id, kind, title, children: [], leaves: 0, open: false });
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
  const { records, folds } = data.stages[stage];
  tree.notePaths(records);
  for (const number of records) tree.add(number);
  tree.finish(byKernel ? (data.kernelFolds ?? {}) : folds);
  return tree;
}

export class Tree {
  constructor(data, byKernel) {
    this.data = data;
    this.root = makeGroup("", null, "root", data.name);
    this.groups = new Map([["", this.root]]);
    this.leaves = [];
    this.makers = new Makers();
    this.kernelOf = new Map();
    this.kernels = data.kernels ?? [];
    this.kernels.forEach((k, i) => k.values.forEach((v) => this.kernelOf.set(v, this.kernelOf.get(v) ?? i)));
    this.paths = new Map(); // by the first value of a node, the groups around it
    this.known = new Map(); // by path, its group
    this.regions = new Set(); // first values of nodes with regions
    this.byKernel = byKernel;
    this.seen = 0;
  }

  notePaths(records) {
    const paths = new Set();
    for (const number of records) {
      const { values, path } = this.data.records[number];
      if (values && this.byKernel) this.paths.set(values[0], path ?? []);
      if (path) paths.add(path);
    }
    for (const path of paths) for (const part of path) if (part[0] === "R") this.regions.add(Number(part.slice(1)));
  }

  /** Enter the record with a number. */
  add(number) {
    const record = this.data.records[number];
    const values = record.values ?? [];
    const isOp = record.kind === "op";
    const path = this.pathOf(record);
    let item;
    if (this.hasRegion(record)) {
      item = this.groupAt([...path, `R${values[0]}`]);
      item.title = record.op;
    } else {
      const group = this.groupAt(path);
      item = new Item(group);
      item.order = this.leaves.length;
      group.children.push(item);
      this.leaves.push(item);
    }
    item.record = record;
    item.number = number;
    if (record.kind !== "output") for (const value of values) this.makers.list[value] = item;
    const order = this.seen++;
    if (isOp) for (let at = item; at && at.first === Infinity; at = at.parent) at.first = order;
  }

  hasRegion(record) {
    return record.kind === "op" && this.regions.has(record.values[0]);
  }

  /** The groups around a record: those of its path, or the kernel it is in. */
  pathOf(record) {
    const path = record.path ?? TOP;
    if (!this.byKernel) return path;
    const kernel = this.kernelOf.get(record.values?.[0]);
    if (kernel === undefined || record.kind === "output" || this.hasRegion(record)) return path;
    return this.placeOfKernel(kernel);
  }

  /** Where a kernel stands: in the groups that all of its nodes of its part are in. */
  placeOfKernel(number) {
    this.places ??= this.kernels.map((kernel, i) => {
      const paths = kernel.values.map((v) => this.paths.get(v)).filter(Boolean);
      const first = mostFrequent(paths.map((p) => p[0]));
      const [head, ...rest] = paths.filter((p) => p[0] === first);
      let shared = head?.length ?? 0;
      for (const p of rest) while (head.slice(0, shared).some((part, k) => part !== p[k])) shared -= 1;
      return [...(head ?? []).slice(0, shared), `K${i}`];
    });
    return this.places[number];
  }

  groupAt(path) {
    let group = this.known.get(path);
    if (group) return group;
    const id = path.map((p) => `/${p}`).join("");
    group = this.groups.get(id) ?? this.newGroup(id, path);
    this.known.set(path, group);
    return group;
  }

  newGroup(id, path) {
    const last = path[path.length - 1];
    const group = this.enter(id, this.groupAt(path.slice(0, -1)), KINDS[last[0]], last.slice(1));
    if (group.kind === "kernel") {
      group.kernel = this.kernels[Number(group.title)];
      group.title = `kernel ${group.kernel.number}`;
    }
    if (group.kind === "module") group.of = this.data.modules?.[moduleOf(path)];
    group.parent.children.push(group);
    return group;
  }

  /** A new group that is known, but not among the children of its parent. */
  enter(id, parent, kind, title) {
    const group = makeGroup(id, parent, kind, title);
    this.groups.set(id, group);
    return group;
  }

  finish(folds) {
    fold(this, folds);
    for (const group of [...this.groups.values()]) untie(this, group);
    if (!this.byKernel) for (const group of [...this.groups.values()]) groupLines(this, group);
    for (const group of [...this.groups.values()]) chunk(this, group);
    this.simplify(this.root);
    arrange(this.root);
    this.at = []; // leaves, and nodes with regions, in the order of the tree
    this.count(this.root);
    this.net = new Net(this);
  }

  /** Leave out groups that hold one thing alone: a module of a module joins its name. */
  simplify(group) {
    for (const child of [...group.children]) if (child.isGroup) this.simplify(child);
    group.children = group.children.map((child) => {
      if (!child.isGroup || child.children.length !== 1 || child.record) return child;
      const [only] = child.children;
      const joins = child.kind === "module" && only.isGroup && (only.kind === "module" || only.kind === "fold");
      if (!joins && only.isGroup) return child;
      if (child.kind === "part" || child.kind === "body") return child;
      if (joins) only.title = `${child.title}${only.kind === "fold" ? ": " : "."}${only.title}`;
      if (child.kernel && !only.isGroup) only.kernel = child.kernel;
      this.dissolve(child, only, group);
      return only;
    });
  }

  dissolve(group, only, parent) {
    this.groups.delete(group.id);
    only.parent = parent;
  }

  count(group) {
    group.depth = group.parent ? group.parent.depth + 1 : 0;
    group.part = group.record?.part ?? (group.kind === "part" ? group.title : group.parent?.part);
    group.lo = this.at.length;
    if (group.record) this.at.push(group);
    const parts = new Set();
    for (const child of group.children) {
      if (child.isGroup) this.count(child);
      else {
        child.lo = this.at.length;
        child.hi = this.at.push(child);
      }
      child.depth = group.depth + 1;
      group.leaves += child.isGroup ? child.leaves : child.record.kind === "op" ? 1 : 0;
      if (parts.size < 2) parts.add(child.part ?? child.record?.part);
    }
    group.hi = this.at.length;
    if (!group.part && parts.size === 1) [group.part] = parts;
  }

  /** Leaves and groups, by name. */
  get items() {
    if (!this.named) {
      this.named = new Map(this.leaves.map((leaf) => [leaf.id, leaf]));
      for (const group of this.groups.values()) if (group.parent) this.named.set(group.id, group);
    }
    return this.named;
  }

  /** The leaves in an item. */
  leavesOf(item) {
    return this.at.slice(item.lo, item.hi).filter((leaf) => !leaf.isGroup);
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

const TOP = [];

/** Bring what is in groups into order. */
function arrange(group) {
  for (const child of group.children) {
    if (child.isGroup) arrange(child);
    group.order = Math.min(group.order, child.order);
  }
  group.children.sort((p, q) => p.order - q.order);
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
  if (record.kind === "output") return `o${record.inputs?.[0]}:${record.op}:${(record.path ?? TOP).join("/")}`;
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
  const queue = [...top.children].sort((p, q) => Number(p.kind === "line") - Number(q.kind === "line"));
  for (let i = 0; i < queue.length; i++) {
    const group = queue[i];
    if (!group.isGroup || group.kind === "fold" || isComposite(group) || seen + countOps(group) > most) continue;
    group.open = true;
    seen += countOps(group);
    for (const child of group.children) queue.push(child);
  }
}

const countOps = (group) => group.children.reduce((n, c) => n + (c.isGroup || c.record.kind === "op" ? 1 : 0), 0);
const isComposite = (group) => group.kind === "region" && Boolean(group.record?.attrs?.arguments);
