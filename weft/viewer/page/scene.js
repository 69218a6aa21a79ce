// The scene: where everything that can be seen stands, for one state of open and closed groups.

import { HUB, layOut } from "weft/layout.js";

const HEAD = 26; // height of a group's title
const PAD = 16;
const COLUMN = 70; // between the parts of a training step

/**
 * @param {Tree} tree
 * @param {(item) => {w: number, h: number}} sizeOf the size of a leaf or of a closed group
 */
export function buildScene(tree, sizeOf) {
  return new Scene(tree, sizeOf).build();
}

class Scene {
  constructor(tree, sizeOf) {
    this.tree = tree;
    this.sizeOf = sizeOf;
    this.inside = new Map(); // by open group, what is in it
  }

  build() {
    const root = this.tree.root;
    const boxes = [];
    const lines = [];
    const parts = root.children.filter((c) => c.kind === "part");
    if (parts.length > 1) this.placeColumns(root, parts, boxes, lines);
    else {
      const flat = this.layGroup(root, false);
      this.emit(root, 0, 0, false, boxes, lines, flat);
    }
    const at = new Map(boxes.map((box) => [box.item, box]));
    for (const line of this.crossLines(at)) lines.push(line);
    const right = Math.max(0, ...boxes.map((b) => b.x + b.w));
    const bottom = Math.max(0, ...boxes.map((b) => b.y + b.h));
    const top = Math.min(0, ...boxes.map((b) => b.y));
    return { boxes, lines, at, bounds: { x: 0, y: top, w: right, h: bottom - top } };
  }

  /** Forward, backward and optimizer side by side; the backward one runs upwards, beside what it belongs to. */
  placeColumns(root, parts, boxes, lines) {
    const order = ["forward", "backward", "optimizer"];
    parts.sort((p, q) => order.indexOf(p.title) - order.indexOf(q.title));
    let x = 0;
    const laid = parts.map((part) => [part, part.open ? this.layGroup(part, part.title === "backward") : null]);
    const tall = Math.max(...laid.map(([part, inner]) => (inner ?? this.sizeOf(part)).h));
    const loose = root.children.filter((c) => c.kind !== "part");
    for (const [part, inner] of laid) {
      const size = inner ?? this.sizeOf(part);
      const y = part.title === "backward" ? tall - size.h : 0;
      boxes.push({ item: part, x, y, w: size.w, h: size.h, open: part.open });
      if (inner) this.emit(part, x, y, part.title === "backward", boxes, lines, inner);
      x += size.w + COLUMN;
    }
    loose.forEach((item, i) => {
      const size = this.sizeOf(item);
      boxes.push({ item, x: 0, y: -(i + 1) * (size.h + 20), ...size, open: false });
    });
  }

  /** Lay out the inside of a group; gives its size, and where values come in and go out. */
  layGroup(group, flipped) {
    const items = [...group.children].sort((p, q) => p.order - q.order);
    const index = new Map(items.map((item, i) => [item, i]));
    const inner = items.map((item) => (item.isGroup && item.open ? this.layGroup(item, flipped) : null));
    const boxes = items.map((item, i) => (inner[i] ? { w: inner[i].w, h: inner[i].h } : this.sizeOf(item)));
    const hubs = findHubs(group);
    const wires = new Wires(inner);
    for (const link of group.links.values()) {
      if (hubs.has(link.from)) continue;
      for (const value of link.values) wires.add(index.get(link.from), index.get(link.to), value, link.from, link.to);
    }
    const ports = this.addPorts(group, boxes, index, wires);
    const laid = pack(boxes, wires.lines, items.length);
    return this.finishGroup(group, flipped, { items, inner, boxes, laid, ends: wires.ends, ports });
  }

  /** Small boxes at the top and bottom of a group, where values come in and go out. */
  addPorts(group, boxes, index, wires) {
    const ports = { ins: new Map(), outs: new Map() };
    if (group.kind === "root" || group.kind === "part") return ports;
    const port = (known, key, pin) => {
      if (!known.has(key)) known.set(key, boxes.push({ w: 8, h: 1, pin }) - 1);
      return known.get(key);
    };
    const [first, last] = [new Map(), new Map()];
    for (const [value, targets] of group.ins) {
      const key = [...targets].map((item) => `${item.id}@${wires.entry(index.get(item), value)}`).join(" ");
      ports.ins.set(value, port(first, key, "first"));
      for (const item of targets) wires.add(ports.ins.get(value), index.get(item), value, null, item);
    }
    for (const [value, item] of group.outs) {
      ports.outs.set(value, port(last, `${item.id}@${wires.exit(index.get(item), value)}`, "last"));
      wires.add(index.get(item), ports.outs.get(value), value, item, null);
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
    const found = { ...made, places, paths, w, h, entries, exits };
    this.inside.set(group, found);
    return found;
  }

  /** Write out a group at a place, turned upside down where the part runs upwards. */
  emit(group, x, y, flipped, boxes, lines, found) {
    const turn = (v, h) => (flipped ? y + found.h - v - h : y + v);
    found.items.forEach((item, i) => {
      const { w, h } = found.boxes[i];
      const place = found.places[i];
      const [left, top] = [x + place.x - w / 2, turn(place.y - h / 2, h)];
      boxes.push({ item, x: left, y: top, w, h, open: Boolean(found.inner[i]) });
      if (found.inner[i]) this.emit(item, left, top, flipped, boxes, lines, found.inner[i]);
    });
    found.paths.forEach((path, i) => {
      if (!path.length) return;
      const points = path.map((p, k) => (k % 2 ? turn(p, 0) : x + p));
      lines.push({ ...found.ends[i], points, group });
    });
  }

  /** Lines from one part to another, and those of hubs: straight from what can be seen to what can be seen. */
  crossLines(at) {
    const found = new Map();
    const faint = [...this.tree.cross];
    for (const group of this.inside.keys()) {
      const hubs = findHubs(group);
      if (!hubs.size) continue;
      for (const edge of this.tree.edges) if (hubs.has(edge.from) && edge.to.ancestors().includes(group)) faint.push(edge);
    }
    for (const edge of faint) {
      const [from, to] = [this.tree.visible(edge.from), this.tree.visible(edge.to)];
      const key = `${from.id}|${to.id}`;
      const line = found.get(key);
      if (line) line.values.push(edge.value);
      else if (at.has(from) && at.has(to) && from !== to) {
        found.set(key, { from, to, values: [edge.value], far: true, points: across(at.get(from), at.get(to)) });
      }
    }
    return found.values();
  }
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
function findHubs(group) {
  const counts = new Map();
  for (const link of group.links.values()) counts.set(link.from, (counts.get(link.from) ?? 0) + 1);
  return new Set([...counts].filter(([item, n]) => n > HUB && !item.isGroup).map(([item]) => item));
}

function across(a, b) {
  if (b.x > a.x + a.w) return [a.x + a.w, a.y + a.h / 2, b.x, b.y + b.h / 2];
  if (a.x > b.x + b.w) return [a.x, a.y + a.h / 2, b.x + b.w, b.y + b.h / 2];
  return [a.x + a.w / 2, a.y + a.h, b.x + b.w / 2, b.y];
}

/** Lay out what hangs together; if that is many pieces, put them side by side in rows. */
function pack(boxes, lines, count) {
  const piece = pieces(boxes.length, lines, count);
  const number = Math.max(0, ...piece) + 1;
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
  const wide = Math.max(Math.sqrt(area * 1.5), ...parts.map((p) => p.laid.w));
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
