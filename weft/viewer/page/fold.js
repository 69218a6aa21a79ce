// Groups that the graph does not have itself: what repeats, what comes from one line, stretches of what is very long.

import { grouped } from "weft/dom.js";

const MANY = 14; // nodes of a group from which on those of a line are put together
const FEW = 5; // nodes of a line that are worth it
const TOO_MANY = 1500; // nodes of a group from which on nobody looks for lines
const MOST = 400; // things in a group; of more, stretches are groups
const STRETCH = 100;

/** Put what repeats into one group, as Python found it. */
export function fold(tree, folds) {
  for (const [id, rounds] of Object.entries(folds)) {
    const group = tree.groups.get(id);
    if (!group) continue;
    const others = group.children.filter((c) => c.first === Infinity);
    let row = group.children.filter((c) => c.first !== Infinity).sort((p, q) => p.first - q.first);
    for (const runs of rounds) row = foldRow(tree, group, row, runs);
    group.children = [...others, ...row];
    bringHome(tree, group, others);
  }
}

/** A row of things with one group for each run; runs are numbers in threes: start, period, count. */
function foldRow(tree, group, row, runs) {
  const found = [];
  let at = 0;
  for (let i = 0; i < runs.length; i += 3) {
    const [start, period, count] = [runs[i], runs[i + 1], runs[i + 2]];
    for (; at < start; at++) found.push(row[at]);
    at = start + period * count;
    found.push(makeFold(tree, group, row.slice(start, at), period));
  }
  for (; at < row.length; at++) found.push(row[at]);
  return found;
}

function makeFold(tree, parent, row, period) {
  const count = row.length / period;
  const group = tree.enter(`${parent.id}/F(${row[0].id})`, parent, "fold", "");
  group.count = count;
  group.title = `${titleOf(tree, parent, row.slice(0, period))} × ${grouped(count)}`;
  group.first = row[0].first;
  group.children = period === 1 ? row : turns(tree, group, row, period);
  for (const child of group.children) child.parent = group;
  return group;
}

/** What repeats several things at once is a turn. */
function turns(tree, group, row, period) {
  const found = [];
  for (let i = 0; i < row.length; i += period) {
    const number = i / period + 1;
    const turn = tree.enter(`${group.id}/T${number}`, group, "turn", `turn ${number}`);
    turn.children = row.slice(i, i + period);
    turn.first = row[i].first;
    for (const child of turn.children) child.parent = turn;
    found.push(turn);
  }
  return found;
}

/** What a fold is called: by its class, the lines it comes from, or its ops. */
function titleOf(tree, parent, first) {
  const groups = first.filter((item) => item.isGroup);
  const module = groups.find((g) => g.kind === "module");
  if (module) return module.of ?? (/^\d+$/.test(module.title) ? parent.title : module.title);
  const kernel = groups.find((g) => g.kernel);
  if (kernel && first.length === 1) return short(kernel.kernel.ops || kernel.kernel.name, 26);
  const places = first.map((item) => item.record?.at).filter(Boolean);
  if (places.length) {
    const lines = places.filter((at) => at[0] === places[0][0]).map((at) => at[1]);
    const [from, to] = [Math.min(...lines), Math.max(...lines)];
    const text = lineText(tree, places[0][0], from);
    return from === to ? `${from}: ${text}` : `${from}–${to}: ${text}`;
  }
  if (groups.length === 1 && first.length === 1) return groups[0].title;
  return first.length === 1 ? first[0].record.op : `${first.length} ops`;
}

function lineText(tree, file, number) {
  const source = tree.data.sources[file];
  return short((source.lines[number - source.first] ?? "").trim(), 26);
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Move parameters and constants that one thing in a group alone uses into it. */
function bringHome(tree, group, others) {
  const homes = new Map();
  for (const item of others) if (item.record?.kind === "param" || item.record?.kind === "constant") homes.set(item.record.values[0], null);
  if (!homes.size) return;
  const visit = (item) => {
    for (const value of item.record?.inputs ?? []) {
      if (homes.has(value)) homes.set(value, shared(homes.get(value), item.isGroup ? item : item.parent));
    }
    for (const child of item.children ?? []) visit(child);
  };
  visit(group);
  for (const item of others) {
    const home = homes.get(item.record?.values?.[0]);
    if (!home || home === group || !isBelow(home, group)) continue;
    item.parent = home;
    home.children.push(item);
  }
  group.children = group.children.filter((item) => item.parent === group);
}

function shared(p, q) {
  if (!p) return q;
  const around = new Set();
  for (let g = p; g; g = g.parent) around.add(g);
  while (!around.has(q)) q = q.parent;
  return q;
}

function isBelow(item, group) {
  while (item && item !== group) item = item.parent;
  return item === group;
}

/** Put many nodes that no module holds together by the line of the source that they come from. */
export function groupLines(tree, group) {
  if (group.kind === "fold" || group.children.length <= MANY || group.children.length > TOO_MANY) return;
  const lines = new Map();
  for (const item of group.children) {
    if (item.isGroup || !item.record.at) continue;
    const line = item.record.at.slice(0, 2).join(":");
    if (!lines.has(line)) lines.set(line, []);
    lines.get(line).push(item);
  }
  const long = [...lines].filter(([, items]) => items.length >= FEW);
  if (!long.length) return;
  const users = usersIn(tree, group);
  const many = long.filter(([, items]) => !comesBack(items, users));
  const most = Math.max(0, ...many.map(([, items]) => items.length));
  const ops = group.children.filter((c) => !c.isGroup && c.record.kind === "op").length;
  const isWhole = group.kind !== "part" && most > 0.8 * ops; // all of it comes from one line
  if (many.length === 0 || isWhole) return;
  for (const [line, items] of many) {
    const [file, number] = line.split(":").map(Number);
    const inner = tree.enter(`${group.id}/L${line}`, group, "line", `${number}: ${lineText(tree, file, number)}`);
    inner.children = items;
    inner.first = items.reduce((least, item) => Math.min(least, item.first), Infinity);
    for (const item of items) item.parent = inner;
    group.children.push(inner);
  }
  group.children = group.children.filter((item) => item.parent === group);
}

/**
 * Take modules apart that merely list others, where values go from one of these through something else to the next: as
 * one box they would be in a circle with what is between them.
 */
export function untie(tree, group) {
  const isListed = (inner) => inner.isGroup && (inner.kind === "fold" || /^\d+$/.test(inner.title));
  const isList = (c) => c.kind === "module" && c.children.length > 1 && c.children.every(isListed);
  if (group.kind === "fold" || !group.children.some(isList)) return;
  const users = usersIn(tree, group);
  for (const list of group.children.filter(isList)) {
    if (!comesBack([list], users)) continue;
    for (const child of list.children) {
      child.parent = group;
      child.title = `${list.title}.${child.title}`;
    }
    group.children.push(...list.children);
    group.children.splice(group.children.indexOf(list), 1);
    tree.groups.delete(list.id);
  }
}

/** By child of a group, the children that take something from it. */
function usersIn(tree, group) {
  const childOf = (item) => {
    while (item && item.parent !== group) item = item.parent;
    return item;
  };
  const users = new Map(group.children.map((child) => [child, new Set()]));
  const visit = (item, child) => {
    for (const value of item.record?.inputs ?? []) users.get(childOf(tree.makers.get(value)))?.add(child);
    for (const inner of item.children ?? []) visit(inner, child);
  };
  for (const child of group.children) visit(child, child);
  return users;
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

/** Put what is too long to be looked at into stretches, in order of execution. */
export function chunk(tree, group) {
  const row = group.children.filter((c) => c.first !== Infinity).sort((p, q) => p.first - q.first);
  if (row.length <= MOST) return;
  const size = Math.max(STRETCH, Math.ceil(Math.sqrt(row.length)));
  const others = group.children.filter((c) => c.first === Infinity);
  const ranges = [];
  for (let i = 0; i < row.length; i += size) {
    const end = Math.min(row.length, i + size);
    const name = group.kind === "fold" ? "" : "steps ";
    const inner = tree.enter(`${group.id}/S${i}`, group, "range", `${name}${grouped(i + 1)}–${grouped(end)}`);
    inner.children = row.slice(i, end);
    inner.first = row[i].first;
    for (const child of inner.children) child.parent = inner;
    ranges.push(inner);
  }
  group.children = [...others, ...ranges];
}
