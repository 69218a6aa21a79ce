// The scene: where everything that can be seen stands, for one state of open and closed groups.

import { HUB, layOut } from "weft/layout.js";

const HEAD = 26; // height of a group's title
const PAD = 16;
const COLUMN = 70; // between the parts of a training step
const FEW_FAR = 40; // lines between parts that are drawn though nothing is chosen

/**
 * @param {Tree} tree
 * @param {(item) => {w: number, h: number}} sizeOf the size of a leaf or of a closed group
 */
export function buildScene(tree, sizeOf) {
  return new Scene(tree, sizeOf).build();
}

/**
 * Boxes, the outer ones first: an open one knows where those in it end (`end`), and which lines are its own
 * (`from`, `to`), so that whoever draws can leave out all of a group.
 */
class Scene {
  constructor(tree, sizeOf) {
    this.tree = tree;
    this.net = tree.net;
    this.sizeOf = sizeOf;
    this.boxes = [];
    this.lines = [];
    this.hubs = new Set(); // values with so many users that their lines are drawn when one is chosen
    this.child = new Int32Array(tree.at.length); // by place, the child of the group that is being laid out
  }

  build() {
    const { root } = this.tree;
    const parts = root.children.filter((c) => c.kind === "part");
    if (parts.length > 1) this.placeColumns(root, parts);
    else this.emit(0, 0, false, this.layGroup(root, false));
    this.own = { from: parts.length > 1 ? this.lines.length : (this.rootLines ?? 0), to: this.lines.length };
    this.at = new Map();
    const bounds = { x: 0, y: 0, right: 0, bottom: 0 };
    for (const box of this.boxes) {
      this.at.set(box.item, box);
      bounds.right = Math.max(bounds.right, box.x + box.w);
      bounds.bottom = Math.max(bounds.bottom, box.y + box.h);
      bounds.y = Math.min(bounds.y, box.y);
    }
    this.bounds = { x: 0, y: bounds.y, w: bounds.right, h: bounds.bottom - bounds.y };
    this.far = parts.length > 1 ? this.fewFar() : [];
    return this;
  }

  /** Forward, backward and optimizer side by side; the backward one runs upwards, beside what it belongs to. */
  placeColumns(root, parts) {
    const order = ["forward", "backward", "optimizer"];
    parts.sort((p, q) => order.indexOf(p.title) - order.indexOf(q.title));
    let x = 0;
    const laid = parts.map((part) => [part, part.open ? this.layGroup(part, part.title === "backward") : null]);
    const tall = Math.max(...laid.map(([part, inner]) => (inner ?? this.sizeOf(part)).h));
    const loose = root.children.filter((c) => c.kind !== "part");
    for (const [part, inner] of laid) {
      const size = inner ?? this.sizeOf(part);
      const y = part.title === "backward" ? tall - size.h : 0;
      this.put(part, x, y, size.w, size.h, part.title === "backward", inner);
      x += size.w + COLUMN;
    }
    loose.forEach((item, i) => {
      const size = this.sizeOf(item);
      this.put(item, 0, -(i + 1) * (size.h + 20), size.w, size.h, false, null);
    });
  }

  put(item, x, y, w, h, flipped, inner) {
    const box = { item, x, y, w, h, open: Boolean(inner), end: 0, from: 0, to: 0 };
    this.boxes.push(box);
    if (inner) {
      box.from = this.emit(x, y, flipped, inner);
      box.to = this.lines.length;
    }
    box.end = this.boxes.length;
  }

  /** Lay out the inside of a group; gives its size, and where values come in and go out. */
  layGroup(group, flipped) {
    const items = group.children;
    const inner = items.map((item) => (item.isGroup && item.open ? this.layGroup(item, flipped) : null));
    const boxes = items.map((item, i) => (inner[i] ? { w: inner[i].w, h: inner[i].h } : this.sizeOf(item)));
    const { links, ins, outs } = this.linksOf(group, items);
    const wires = new Wires(inner);
    const hubs = findHubs(items, links);
    for (const { a, b, values } of links.values()) {
      if (hubs.has(a)) for (const value of values) this.hubs.add(value);
      else for (const value of values) wires.add(a, b, value, items[a], items[b]);
    }
    const ports = this.addPorts(items, boxes, ins, outs, wires);
    const laid = pack(boxes, wires.lines, items.length);
    return this.finishGroup(group, flipped, { items, inner, boxes, laid, ends: wires.ends, ports });
  }

  /** What goes from child to child of a group, and what comes into it and goes out. */
  linksOf(group, items) {
    const { net, child } = this;
    const [links, ins, outs] = [new Map(), new Map(), new Map()];
    items.forEach((item, i) => child.fill(i, item.lo, item.hi));
    const hasPorts = group.kind !== "root" && group.kind !== "part";
    const own = group.record ? group.lo : -1; // a loop's own values go around it
    const begin = group.record ? own + 1 : group.lo;
    const isInside = (place) => place >= begin && place < group.hi;
    for (let to = begin; to < group.hi; to++) {
      for (let e = net.ins.start[to]; e < net.ins.start[to + 1]; e++) {
        const [from, value] = [net.ins.other[e], net.ins.value[e]];
        if (isInside(from)) {
          if (child[from] !== child[to]) link(links, child[from], child[to], value, items.length);
        } else if (hasPorts && from !== own && !net.isQuiet(from, to)) {
          if (!ins.has(value)) ins.set(value, new Set());
          ins.get(value).add(child[to]);
        }
      }
      for (let e = net.outs.start[to]; hasPorts && e < net.outs.start[to + 1]; e++) {
        const user = net.outs.other[e];
        if (!isInside(user) && user !== own && !net.isQuiet(to, user)) outs.set(net.outs.value[e], child[to]);
      }
    }
    return { links, ins, outs };
  }

  /** Small boxes at the top and bottom of a group, where values come in and go out. */
  addPorts(items, boxes, ins, outs, wires) {
    const ports = { ins: new Map(), outs: new Map() };
    const port = (known, key, pin) => {
      if (!known.has(key)) known.set(key, boxes.push({ w: 8, h: 1, pin }) - 1);
      return known.get(key);
    };
    const [first, last] = [new Map(), new Map()];
    for (const [value, targets] of ins) {
      if (targets.size > HUB) {
        this.hubs.add(value);
        continue;
      }
      const key = [...targets].map((i) => `${i}@${wires.entry(i, value)}`).join(" ");
      ports.ins.set(value, port(first, key, "first"));
      for (const i of targets) wires.add(ports.ins.get(value), i, value, null, items[i]);
    }
    for (const [value, i] of outs) {
      ports.outs.set(value, port(last, `${i}@${wires.exit(i, value)}`, "last"));
      wires.add(i, ports.outs.get(value), value, items[i], null);
    }
    return ports;
  }

  finishGroup(group, flipped, made) {
    const { laid, ports } = made;
    const bare = group.kind === "root";
    const side = bare ? 0 : PAD;
    const [above, below] = bare ? [0, 0] : flipped ? [PAD, HEAD + 4] : [HEAD + 4, PAD];
    const title = bare ? 0 : this.sizeOf(group).w + 10;
    const w = Math.max(laid.w + 2 * side, title);
    const h = laid.h + above + below;
    const left = (w - laid.w) / 2;
    const places = laid.places.map(({ x, y }) => ({ x: x + left, y: y + above }));
    const paths = laid.paths.map((path) => path.map((p, i) => p + (i % 2 ? above : left)));
    const entries = new Map();
    const exits = new Map();
    for (const [value, port] of ports.ins) entries.set(value, places[port].x - w / 2);
    for (const [value, port] of ports.outs) exits.set(value, places[port].x - w / 2);
    paths.forEach((path, i) => {
      if (!made.ends[i].from) path[1] = 0;
      if (!made.ends[i].to) path[path.length - 1] = h;
    });
    return { ...made, group, places, paths, w, h, entries, exits };
  }

  /** Write out a group at a place, upside down where the part runs upwards; gives where its own lines begin. */
  emit(x, y, flipped, found) {
    const turn = (v, h) => (flipped ? y + found.h - v - h : y + v);
    found.items.forEach((item, i) => {
      const { w, h } = found.boxes[i];
      const place = found.places[i];
      this.put(item, x + place.x - w / 2, turn(place.y - h / 2, h), w, h, flipped, found.inner[i]);
    });
    const begin = this.lines.length;
    if (found.group.kind === "root") this.rootLines = begin;
    found.paths.forEach((path, i) => {
      if (!path.length) return;
      const points = path.map((p, k) => (k % 2 ? turn(p, 0) : x + p));
      this.lines.push({ ...found.ends[i], points, group: found.group });
    });
    return begin;
  }

  // Lines that go straight from box to box

  /** By place, the number of the box that it is seen in; -1 for none. */
  get shown() {
    if (!this.seenIn) {
      this.seenIn = new Int32Array(this.tree.at.length).fill(-1);
      this.boxes.forEach(({ item, open }, i) => {
        if (!open) this.seenIn.fill(i, item.lo, item.hi);
        else if (item.record) this.seenIn[item.lo] = i;
      });
    }
    return this.seenIn;
  }

  /** Lines between forward and backward, if they are few. */
  fewFar() {
    const { net, shown } = this;
    const found = new Map();
    for (let to = 0; to < net.part.length; to++) {
      for (let e = net.ins.start[to]; e < net.ins.start[to + 1]; e++) {
        const from = net.ins.other[e];
        if (net.part[from] === net.part[to] || net.part[to] === 3 || net.part[from] === 3) continue;
        if (this.tree.at[from].record.kind !== "param") this.bundle(found, shown[from], shown[to], net.ins.value[e]);
      }
      if (found.size > FEW_FAR) return [];
    }
    return [...found.values()];
  }

  bundle(found, a, b, value) {
    if (a < 0 || b < 0 || a === b) return;
    const key = a * this.boxes.length + b;
    const line = found.get(key);
    if (line) line.values.push(value);
    else {
      const [p, q] = [this.boxes[a], this.boxes[b]];
      found.set(key, { from: p.item, to: q.item, values: [value], far: true, points: across(p, q) });
    }
  }

  /** What goes from and to an item that can be seen, as far as no line of a group shows it: a line for each other box. */
  quietLines(item) {
    const own = this.at.get(item);
    if (!own) return [];
    if (this.quiet?.item === item) return this.quiet.lines;
    const { net, shown } = this;
    const found = new Map();
    const isAway = (place) => place < item.lo || place >= item.hi;
    const number = this.boxes.indexOf(own);
    for (let place = item.lo; place < item.hi; place++) {
      for (let e = net.ins.start[place]; e < net.ins.start[place + 1]; e++) {
        const [other, value] = [net.ins.other[e], net.ins.value[e]];
        if (isAway(other) && (this.hubs.has(value) || net.isQuiet(other, place))) this.bundle(found, shown[other], number, value);
      }
      for (let e = net.outs.start[place]; e < net.outs.start[place + 1]; e++) {
        const [other, value] = [net.outs.other[e], net.outs.value[e]];
        if (isAway(other) && (this.hubs.has(value) || net.isQuiet(place, other))) this.bundle(found, number, shown[other], value);
      }
    }
    this.quiet = { item, lines: [...found.values()] };
    return this.quiet.lines;
  }
}

function link(links, a, b, value, count) {
  const key = a * count + b;
  const known = links.get(key);
  if (known) known.values.add(value);
  else links.set(key, { a, b, values: new Set([value]) });
}

/** The lines of a group: values that leave and arrive at the same places are one line. */
class Wires {
  constructor(inner) {
    this.inner = inner;
    this.lines = [];
    this.ends = [];
    this.known = new Map();
  }

  /** How far from the middle of a box a value leaves it, or enters it. */
  exit(box, value) {
    return this.inner[box]?.exits.get(value) ?? 0;
  }

  entry(box, value) {
    return this.inner[box]?.entries.get(value) ?? 0;
  }

  add(a, b, value, from, to) {
    const [da, db] = [this.exit(a, value), this.entry(b, value)];
    const key = `${a} ${b} ${da} ${db}`;
    const end = this.known.get(key);
    if (end) {
      end.values.push(value);
      return;
    }
    this.known.set(key, { values: [value], from, to });
    this.ends.push(this.known.get(key));
    this.lines.push({ a, b, da, db });
  }
}

/** The items of a group from which so many lines go out that they would hide the rest. */
function findHubs(items, links) {
  const counts = new Map();
  for (const { a } of links.values()) counts.set(a, (counts.get(a) ?? 0) + 1);
  return new Set([...counts].filter(([i, n]) => n > HUB && !items[i].isGroup).map(([i]) => i));
}

function across(a, b) {
  if (b.x > a.x + a.w) return [a.x + a.w, a.y + a.h / 2, b.x, b.y + b.h / 2];
  if (a.x > b.x + b.w) return [a.x, a.y + a.h / 2, b.x + b.w, b.y + b.h / 2];
  return [a.x + a.w / 2, a.y + a.h, b.x + b.w / 2, b.y];
}

/** Lay out what hangs together; if that is many pieces, put them side by side in rows. */
function pack(boxes, lines, count) {
  const key = `${count};${boxes.map((b) => `${b.w} ${b.h}${b.pin ?? ""}`)};${lines.map((l) => `${l.a} ${l.b} ${l.da} ${l.db}`)}`;
  if (key.length > LONG_KEY) return layPieces(boxes, lines, count);
  if (!known.has(key)) known.set(key, layPieces(boxes, lines, count));
  return known.get(key);
}

const LONG_KEY = 4000; // characters; what is larger than that is hardly ever laid out twice
const known = new Map(); // what was laid out: equal blocks are laid out once

function layPieces(boxes, lines, count) {
  const piece = pieces(boxes.length, lines, count);
  const number = piece.reduce((most, p) => Math.max(most, p), 0) + 1;
  if (number < 4) return layOut(boxes, lines);
  const parts = Array.from({ length: number }, () => ({ boxes: [], lines: [], ids: [], lineIds: [] }));
  const local = boxes.map((box, i) => {
    parts[piece[i]].ids.push(i);
    return parts[piece[i]].boxes.push(box) - 1;
  });
  lines.forEach((line, i) => {
    const part = parts[piece[line.a]];
    if (piece[line.b] !== piece[line.a]) return;
    part.lineIds.push(i);
    part.lines.push({ ...line, a: local[line.a], b: local[line.b] });
  });
  return inRows(parts, boxes.length, lines.length);
}

function pieces(total, lines, count) {
  const parent = Array.from({ length: total }, (_, i) => i);
  const find = (i) => {
    while (parent[i] !== i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const { a, b } of lines) if (a < count && b < count) parent[find(a)] = find(b);
  for (const { a, b } of lines) {
    const port = Math.max(a, b);
    if (port >= count && parent[port] === port) parent[port] = find(Math.min(a, b));
  }
  const names = new Map();
  return parent.map((_, i) => {
    const root = find(i);
    if (!names.has(root)) names.set(root, names.size);
    return names.get(root);
  });
}

function inRows(parts, boxCount, lineCount) {
  for (const part of parts) part.laid = layOut(part.boxes, part.lines);
  const area = parts.reduce((sum, p) => sum + (p.laid.w + 24) * (p.laid.h + 24), 0);
  const wide = parts.reduce((most, p) => Math.max(most, p.laid.w), Math.sqrt(area * 1.5));
  const places = new Array(boxCount);
  const paths = Array.from({ length: lineCount }, () => []);
  let [x, y, tall, right] = [0, 0, 0, 0];
  for (const { laid, ids, lineIds } of parts) {
    if (x > 0 && x + laid.w > wide) [x, y, tall] = [0, y + tall + 24, 0];
    ids.forEach((id, i) => (places[id] = { x: laid.places[i].x + x, y: laid.places[i].y + y }));
    lineIds.forEach((id, i) => (paths[id] = laid.paths[i].map((p, k) => p + (k % 2 ? y : x))));
    x += laid.w + 24;
    right = Math.max(right, x - 24);
    tall = Math.max(tall, laid.h);
  }
  return { places, paths, w: right, h: y + tall };
}
