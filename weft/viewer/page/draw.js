// Drawing of a scene on a canvas; from far away boxes lose their text, and lines their curves.

import { grouped } from "weft/dom.js";
import { heatColour, toneOf } from "weft/colours.js";

export const FONT = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif';
const TITLE = `600 12px ${FONT}`;
const SMALL = `10.5px ${FONT}`;
const TEXT_FROM = 0.38; // scale from which on text can be read
const CURVES_FROM = 0.16;

const measuring = document.createElement("canvas").getContext("2d");
const widths = new Map(); // by font and letter: of 100,000 labels no two may be alike, but their letters are

function textWidth(text, font) {
  if (!widths.has(font)) widths.set(font, new Map());
  const letters = widths.get(font);
  let width = 0;
  for (const letter of text) {
    let own = letters.get(letter);
    if (own === undefined) {
      measuring.font = font;
      own = measuring.measureText(letter).width;
      letters.set(letter, own);
    }
    width += own;
  }
  return width;
}

/** The two lines of text of an item. */
export function labelOf(item) {
  item.label ??= makeLabel(item);
  return item.label;
}

function makeLabel(item) {
  const record = item.record;
  if (item.isGroup) {
    const count = `${grouped(item.leaves)} op${item.leaves === 1 ? "" : "s"}`;
    if (item.kind === "fold") return [nameOf(item), `${count}, ${eachText(item)}`];
    if (item.kernel) return [item.title, short(item.kernel.ops || item.kernel.name, 34)];
    const type = item.kind === "region" && record ? ` → ${short((record.types ?? []).join(", "), 26)}` : "";
    return [nameOf(item), count + type];
  }
  const numbers = record.numbers ? ` ${record.numbers.join(", ")}` : "";
  const title = record.kind === "param" ? record.op.split(".").slice(-2).join(".") : record.op;
  return [short(title + numbers, 30), short((record.types ?? []).join(", "), 34)];
}

/** How many ops one of many equal things has. */
function eachText(item) {
  const each = item.leaves / item.count;
  return Number.isInteger(each) ? `${grouped(each)} each` : `${item.count} alike`;
}

/** The name of a group: of a module also its class, where that is known. */
export const nameOf = (item) => (item.of ? `${item.title}: ${item.of}` : item.title);

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** The size of a leaf, or of a closed group. */
export function sizeOf(item) {
  item.size ??= findSize(item);
  return item.size;
}

function findSize(item) {
  const [title, second] = labelOf(item);
  const w = Math.max(textWidth(title, TITLE) + (item.isGroup ? 18 : 0), textWidth(second, SMALL)) + 24;
  return { w: Math.max(item.isGroup ? 96 : 54, Math.ceil(w)), h: second ? 38 : 26 };
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {object} look colours, heat, lit, chosen, now, flow (the values of the chosen), quiet (its lines), marks, dim
 * @param {{x: number, y: number, k: number, w: number, h: number}} view left and top in the scene, scale, pixels
 */
export function drawScene(ctx, scene, look, view) {
  ctx.save();
  ctx.fillStyle = look.colours.paper;
  ctx.fillRect(0, 0, view.w, view.h);
  ctx.scale(view.k, view.k);
  ctx.translate(-view.x, -view.y);
  const area = { left: view.x, top: view.y, right: view.x + view.w / view.k, bottom: view.y + view.h / view.k };
  const { open, closed, specks, lines } = collect(scene, area, view.k);
  for (const box of open) drawOpen(ctx, box, look, view.k);
  for (const box of specks) drawSpeck(ctx, box, look, view.k);
  ctx.globalAlpha = look.lineAlpha ?? 1;
  drawLines(ctx, scene, lines, look, view.k, area);
  ctx.globalAlpha = 1;
  drawClosed(ctx, closed, look, view.k);
  const taken = [];
  for (const box of open) drawTitle(ctx, box, look, view, taken);
  ctx.restore();
}

const SPECK = 7; // pixels below which nobody sees what is in a group
const isSeen = (b, area) => b.x < area.right && b.x + b.w > area.left && b.y < area.bottom && b.y + b.h > area.top;

/** What of a scene is in an area, and large enough to be drawn: whole groups are left out at once. */
function collect(scene, area, k) {
  const { boxes } = scene;
  const found = { open: [], closed: [], specks: [], lines: [] };
  const takeLines = ({ from, to }) => {
    for (let i = from; i < to; i++) found.lines.push(scene.lines[i]);
  };
  if (scene.isMoving) {
    for (const box of boxes) if (isSeen(box, area)) found[box.open ? "open" : "closed"].push(box);
    takeLines({ from: 0, to: scene.lines.length });
    return found;
  }
  if (scene.own) takeLines(scene.own);
  for (let i = 0; i < boxes.length; ) {
    const box = boxes[i];
    const isSpeck = box.w * k < SPECK || box.h * k < SPECK;
    i = box.open && (isSpeck || !isSeen(box, area)) ? box.end : i + 1;
    if (!isSeen(box, area)) continue;
    if (!box.open) found.closed.push(box);
    else if (isSpeck) found.specks.push(box);
    else {
      found.open.push(box);
      takeLines(box);
    }
  }
  return found;
}

/** A group that is too small for what is in it. */
function drawSpeck(ctx, box, look, k) {
  ctx.fillStyle = toneOf(box.item, look.colours)[1];
  ctx.globalAlpha = 0.45;
  ctx.fillRect(box.x, box.y, Math.max(box.w, 1 / k), Math.max(box.h, 1 / k));
  ctx.globalAlpha = 1;
}

function rounded(ctx, b, radius) {
  ctx.beginPath();
  ctx.roundRect(b.x, b.y, b.w, b.h, radius);
}

function drawOpen(ctx, box, look, k) {
  const { item } = box;
  const tint = look.colours.group[Math.min(2, Math.max(0, item.depth - 1))];
  ctx.globalAlpha = box.alpha ?? 1;
  rounded(ctx, box, 10);
  ctx.fillStyle = tint;
  ctx.fill();
  const lit = look.chosen === item;
  ctx.strokeStyle = lit ? look.colours.lit : item.kind === "kernel" ? look.colours.tone.op[1] : look.colours.groupLine;
  ctx.lineWidth = Math.max(lit ? 2.5 : item.kind === "kernel" ? 1.6 : 1, 0.7 / k);
  if (item.kind === "region" || item.kind === "body") ctx.setLineDash([6, 4]);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

/** The title of an open group: seen from far away it is as large as it must be to be read, and gives way to others. */
function drawTitle(ctx, box, look, view, taken) {
  const { item } = box;
  const { k } = view;
  const size = Math.max(12, 11 / k);
  const room = box.w - 14;
  if (room * k < 26 || box.h * k < 15) return;
  let text = `▾ ${groupTitle(item)}`;
  const wide = (textWidth(text, TITLE) * size) / 12;
  if (wide > room) text = `${text.slice(0, Math.max(3, Math.floor((text.length * room) / wide) - 1))}…`;
  const [x, y] = [Math.max(box.x, Math.min(view.x, box.x + box.w - wide - 18)) + 9, box.y + Math.min(7, 7 / k)];
  const place = { x, y, w: Math.min(wide, room), h: size * 1.15 };
  const isFar = size > 13;
  if (isFar && taken.some((t) => t.x < x + place.w && x < t.x + t.w && t.y < y + place.h && y < t.y + t.h)) return;
  taken.push(place);
  ctx.globalAlpha = box.alpha ?? 1;
  ctx.font = `600 ${size}px ${FONT}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.fillStyle = toneOf(item, look.colours)[1];
  if (isFar) {
    ctx.strokeStyle = look.colours.group[0];
    ctx.lineWidth = size / 3.5;
    ctx.lineJoin = "round";
    ctx.strokeText(text, x, y);
  }
  ctx.fillText(text, x, y);
  ctx.globalAlpha = 1;
}

function groupTitle(item) {
  if (!item.kernel) return nameOf(item);
  return item.kernel.seconds === null ? item.title : `${item.title} · ${seconds(item.kernel.seconds)}`;
}

export function seconds(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(s < 1e-2 ? 2 : 1)} ms`;
  return `${(s * 1e6).toFixed(s < 1e-5 ? 2 : 1)} µs`;
}

export function bytes(n) {
  if (n < 1000) return `${n} bytes`;
  const units = ["KB", "MB", "GB", "TB"];
  let i = -1;
  for (; n >= 999.95 && i < 3; i++) n /= 1000;
  return `${n.toFixed(1)} ${units[i]}`;
}

// Closed boxes

function drawClosed(ctx, boxes, look, k) {
  const simple = k < TEXT_FROM;
  for (const box of boxes) {
    const item = box.item;
    ctx.globalAlpha = (box.alpha ?? 1) * (look.dim?.(item) ?? 1);
    const [fill, stroke] = fillOf(item, look);
    ctx.fillStyle = fill;
    ctx.strokeStyle = stroke;
    if (simple && box.w * k < 26 && !isMarked(item, look)) {
      const hot = look.heat?.(item) !== undefined;
      ctx.fillStyle = hot ? fill : stroke;
      ctx.globalAlpha *= hot ? 1 : 0.55;
      ctx.fillRect(box.x, box.y, box.w, box.h);
      continue;
    }
    if (item.isGroup) drawStack(ctx, box, fill, stroke, k);
    else drawLeaf(ctx, box, item, k);
    if (box.w * k > 14) drawLabel(ctx, box, look, k);
    drawMark(ctx, box, look, k);
  }
  ctx.globalAlpha = 1;
}

function fillOf(item, look) {
  const [fill, stroke] = toneOf(item, look.colours);
  const share = look.heat?.(item);
  return share === undefined ? [fill, stroke] : [heatColour(share), stroke];
}

const isMarked = (item, look) => look.chosen === item || look.lit?.has(item) || look.now === item;

function drawLeaf(ctx, box, item, k) {
  const kind = item.record.kind;
  rounded(ctx, box, kind === "input" || kind === "output" ? box.h / 2 : kind === "param" ? [12, 2, 12, 2] : 5);
  ctx.fill();
  ctx.lineWidth = Math.max(1, 0.6 / k);
  ctx.stroke();
}

/** A closed group looks like a pile. */
function drawStack(ctx, box, fill, stroke, k) {
  const w = Math.max(1, 0.6 / k);
  ctx.lineWidth = w;
  for (const shift of [4, 2, 0]) {
    rounded(ctx, { x: box.x + shift, y: box.y + shift, w: box.w - 4, h: box.h - 4 }, 7);
    ctx.fillStyle = fill;
    ctx.fill();
    ctx.strokeStyle = stroke;
    ctx.stroke();
  }
}

function drawLabel(ctx, box, look, k) {
  const { item } = box;
  const [title, second] = labelOf(item);
  const share = look.heat?.(item);
  const inverse = share === undefined && item.record?.kind === "output";
  const ink = share !== undefined ? (share > 0.55 ? "#111111" : "#ffffff") : inverse ? look.colours.paper : look.colours.ink;
  const middle = box.x + box.w / 2 - (item.isGroup ? 2 : 0);
  const near = k >= TEXT_FROM;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = ink;
  const text = item.isGroup ? `▸ ${title}` : title;
  if (near) {
    ctx.font = TITLE;
    ctx.fillText(text, middle, box.y + box.h / 2 - (!second ? 0 : item.isGroup ? 9 : 7));
    if (!second) return;
    ctx.font = SMALL;
    ctx.globalAlpha *= 0.8;
    ctx.fillText(second, middle, box.y + box.h / 2 + (item.isGroup ? 6 : 8));
    ctx.globalAlpha /= 0.8;
    return;
  }
  const size = Math.min(box.h - 8, Math.max(12, 9.5 / k));
  if (size * k < 5) return;
  const wide = (textWidth(text, TITLE) * size) / 12;
  const part = Math.floor((text.length * (box.w - 6)) / wide);
  if (wide > box.w - 6 && part < 3) return;
  ctx.font = `600 ${size}px ${FONT}`;
  ctx.fillText(wide > box.w - 6 ? `${text.slice(0, part - 1)}…` : text, middle, box.y + box.h / 2);
}

/** What a pass did to a box, and whether it is chosen, found, or being computed now. */
function drawMark(ctx, box, look, k) {
  const { item } = box;
  const mark = look.marks?.get(item);
  if (mark) {
    const colour = look.colours[mark.kind];
    ctx.strokeStyle = colour;
    ctx.lineWidth = Math.max(2.2, 1.6 / k);
    if (mark.kind !== "added") ctx.setLineDash([5, 3]);
    rounded(ctx, box, 6);
    ctx.stroke();
    ctx.setLineDash([]);
    drawBadge(ctx, box, mark.text, colour, look.colours.paper);
  }
  if (!isMarked(item, look)) return;
  ctx.globalAlpha = 1;
  ctx.strokeStyle = look.colours.lit;
  ctx.lineWidth = Math.max(look.chosen === item || look.now === item ? 3.5 : 2.5, 2.2 / k);
  rounded(ctx, { x: box.x - 2, y: box.y - 2, w: box.w + 4, h: box.h + 4 }, 8);
  ctx.stroke();
}

function drawBadge(ctx, box, text, colour, paper) {
  ctx.font = `700 10px ${FONT}`;
  const w = textWidth(text, ctx.font) + 8;
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.roundRect(box.x + box.w - w + 7, box.y - 10, w, 14, 7);
  ctx.fill();
  ctx.fillStyle = paper;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(text, box.x + box.w - w / 2 + 7, box.y - 2.5);
}

// Lines

function drawLines(ctx, scene, lines, look, k, area) {
  const plain = [];
  const thick = [];
  const strong = [];
  const near = look.chosen ?? look.hovered;
  for (const line of lines) {
    if (outside(line.points, area)) continue;
    if (touches(line, near, look)) strong.push(line);
    else (line.values.length < 2 ? plain : thick).push(line);
  }
  const far = (scene.far ?? []).filter((line) => line.from !== near && line.to !== near);
  const curves = k >= CURVES_FROM && plain.length + thick.length < 4000;
  stroke(ctx, far, look.colours.far, 0.8, k, curves, [3, 4]);
  stroke(ctx, plain, look.colours.line, 1.1, k, curves);
  stroke(ctx, thick, look.colours.line, 2.2, k, curves);
  if (curves && k > 0.3) arrows(ctx, [...plain, ...thick], look.colours.line);
  for (const line of look.quiet ?? []) stroke(ctx, [line], look.colours.lit, bundleWidth(line), k, true);
  stroke(ctx, strong, look.colours.lit, 2, k, true);
  if (k > 0.2) arrows(ctx, strong, look.colours.lit);
}

/** A bundle is the thicker the more is in it. */
const bundleWidth = (line) => Math.min(7, 1.2 + Math.log2(line.values.length));

function outside(points, area) {
  const n = points.length;
  if (n > 4) return false; // it may go anywhere; its group is in sight
  const [x1, y1, x2, y2] = [points[0], points[1], points[n - 2], points[n - 1]];
  const slack = 400;
  return (
    (x1 < area.left - slack && x2 < area.left - slack) ||
    (x1 > area.right + slack && x2 > area.right + slack) ||
    (y1 < area.top && y2 < area.top) ||
    (y1 > area.bottom && y2 > area.bottom)
  );
}

/** Whether a line carries something to or from the item that is chosen, be it a part of the way. */
function touches(line, item, look) {
  if (item && (line.from === item || line.to === item)) return true;
  const { flow } = look;
  if (!flow || (flow.into.size === 0 && flow.out.size === 0) || !line.values.some((v) => flow.into.has(v) || flow.out.has(v))) return false;
  if (line.values.some((v) => flow.out.has(v))) return true;
  return !line.to || flow.around.has(line.to);
}

function stroke(ctx, lines, colour, width, k, curves, dashes = []) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = Math.max(width, 0.6 / k);
  ctx.setLineDash(dashes);
  ctx.beginPath();
  for (const line of lines) trace(ctx, line, curves);
  ctx.stroke();
  ctx.setLineDash([]);
}

function trace(ctx, line, curves) {
  const p = line.points;
  ctx.moveTo(p[0], p[1]);
  for (let i = 2; i < p.length; i += 2) {
    if (!curves || p[i] === p[i - 2]) ctx.lineTo(p[i], p[i + 1]);
    else if (line.far && Math.abs(p[i] - p[i - 2]) > 30) {
      const middle = (p[i] + p[i - 2]) / 2;
      ctx.bezierCurveTo(middle, p[i - 1], middle, p[i + 1], p[i], p[i + 1]);
    } else {
      const middle = (p[i + 1] + p[i - 1]) / 2;
      ctx.bezierCurveTo(p[i - 2], middle, p[i], middle, p[i], p[i + 1]);
    }
  }
}

function arrows(ctx, lines, colour) {
  ctx.fillStyle = colour;
  ctx.beginPath();
  for (const { points, to, far } of lines) {
    if (!to || far) continue;
    const n = points.length;
    const [x, y] = [points[n - 2], points[n - 1]];
    const down = y >= points[n - 3] ? 1 : -1;
    ctx.moveTo(x, y);
    ctx.lineTo(x - 3.2, y - 6 * down);
    ctx.lineTo(x + 3.2, y - 6 * down);
  }
  ctx.fill();
}
