// The canvas: pan, zoom and motion. A large scene is drawn once onto a larger sheet, which then merely moves.

import { drawScene } from "weft/draw.js";

const MARGIN = 0.35; // of the window that the sheet reaches beyond each side of it
const LARGE = 500; // boxes from which on the sheet is used
const REST = 110; // milliseconds without motion until the sheet is drawn afresh
const MOTION = 320;
const LEAST = 0.45; // scale of the first view

export class Camera {
  /** @param {HTMLCanvasElement} canvas @param {() => object} look what drawScene wants to know */
  constructor(canvas, look) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
    this.look = look;
    this.at = { x: 0, y: 0, k: 1 };
    this.scene = { boxes: [], lines: [], at: new Map(), bounds: { x: 0, y: 0, w: 1, h: 1 } };
    this.sheet = document.createElement("canvas");
    this.sheetAt = null;
    this.touched = false; // whether the user has moved it since it showed all
    this.motion = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  resize() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const { clientWidth, clientHeight } = this.canvas;
    this.ratio = ratio;
    this.w = clientWidth;
    this.h = clientHeight;
    this.canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    if (this.begun) this.begin();
    else if (!this.touched && this.scene.boxes.length) this.fit(undefined, false);
    this.sheetAt = null;
    this.paint();
  }

  /** Draw in the next frame; afresh unless only the camera moved. */
  paint(afresh = true) {
    if (afresh) this.sheetAt = null;
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((now) => {
      this.asked = false;
      this.frame(now);
    });
  }

  frame(now) {
    if (this.motion) return this.frameOfMotion(now);
    if (this.isSmall) return this.drawAll(this.scene, this.look());
    if (!this.sheetAt || !this.covers()) this.drawSheet();
    else if (this.sheetAt.k !== this.at.k || this.moved) this.later();
    this.showSheet();
  }

  /** Whether the scene is drawn afresh in every frame. */
  get isSmall() {
    return this.scene.boxes.length < LARGE;
  }

  drawAll(scene, look) {
    const view = { ...this.at, w: this.w, h: this.h };
    this.ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    drawScene(this.ctx, scene, look, view);
    this.over?.(this.ctx, view);
  }

  // The sheet

  drawSheet() {
    const [w, h] = [this.w * (1 + 2 * MARGIN), this.h * (1 + 2 * MARGIN)];
    const sheet = this.sheet;
    const [pw, ph] = [Math.round(w * this.ratio), Math.round(h * this.ratio)];
    if (sheet.width !== pw || sheet.height !== ph) [sheet.width, sheet.height] = [pw, ph];
    const { x, y, k } = this.at;
    this.sheetAt = { x: x - (this.w * MARGIN) / k, y: y - (this.h * MARGIN) / k, k, w, h };
    const ctx = sheet.getContext("2d", { alpha: false });
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    drawScene(ctx, this.scene, this.look(), this.sheetAt);
  }

  covers() {
    const { x, y, k } = this.at;
    const s = this.sheetAt;
    const ratio = k / s.k;
    if (ratio > 1.9 || ratio < 0.62) return false;
    const slack = 1 / k;
    return (
      x >= s.x - slack && y >= s.y - slack && x + this.w / k <= s.x + s.w / s.k + slack && y + this.h / k <= s.y + s.h / s.k + slack
    );
  }

  showSheet() {
    const s = this.sheetAt;
    const { x, y, k } = this.at;
    const scale = k / s.k;
    this.ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.ctx.fillStyle = this.look().colours.paper;
    this.ctx.fillRect(0, 0, this.w, this.h);
    this.ctx.drawImage(this.sheet, (s.x - x) * k, (s.y - y) * k, s.w * scale, s.h * scale);
    this.over?.(this.ctx, { ...this.at, w: this.w, h: this.h });
  }

  later() {
    clearTimeout(this.timer);
    this.moved = false;
    this.timer = setTimeout(() => this.paint(), REST);
  }

  // Motion

  /** Show another scene; what is in both moves from where it was, the rest comes from the group it was in. */
  show(scene, { anchor, fit } = {}) {
    this.onMove?.();
    const old = this.scene;
    const first = old.boxes.length === 0;
    const before = anchor && (old.at.get(anchor) ?? old.boxes.find((b) => b.item.id === anchor.id));
    const after = anchor && scene.at.get(anchor);
    this.scene = scene;
    if (!first) this.begun = false;
    const from = { ...this.at };
    if (first) this.begin();
    else if (fit) this.fit(undefined, false);
    else if (before && after) {
      this.at.x += after.x - before.x;
      this.at.y += after.y - before.y;
    }
    if (first || this.still || scene.boxes.length + old.boxes.length > 3000) return this.paint();
    const shift = before && after && !fit ? { x: after.x - before.x, y: after.y - before.y } : { x: 0, y: 0 };
    this.motion = { start: performance.now(), ...tween(old, scene, shift), from: fit ? from : null };
    this.paint();
  }

  frameOfMotion(now) {
    const { start, boxes } = this.motion;
    const t = Math.max(0, Math.min(1, (now - start) / MOTION)); // a frame may have begun before
    const ease = 1 - (1 - t) ** 3;
    const look = { ...this.look(), lineAlpha: Math.max(0, (t - 0.35) / 0.65) };
    const moved = boxes.map(({ box, from, to, alpha }) => ({
      ...box,
      x: from.x + (to.x - from.x) * ease,
      y: from.y + (to.y - from.y) * ease,
      w: from.w + (to.w - from.w) * ease,
      h: from.h + (to.h - from.h) * ease,
      alpha: alpha(ease),
    }));
    this.drawAll({ boxes: moved, lines: this.scene.lines, far: this.scene.far, isMoving: true }, look);
    if (t >= 1) this.motion = null;
    this.paint();
  }

  /** Move the camera to a place. */
  glide(to, quick = false) {
    this.onMove?.();
    if (this.still || quick) {
      this.at = to;
      return this.paint();
    }
    const from = { ...this.at };
    const start = performance.now();
    const token = (this.gliding = {});
    const step = (now) => {
      if (this.gliding !== token) return;
      const t = Math.max(0, Math.min(1, (now - start) / MOTION)); // a frame may have begun before
      const e = 1 - (1 - t) ** 3;
      const k = from.k * (to.k / from.k) ** e;
      // the middle of the window goes in a straight line
      const mid = (c, v, size) => v + size / 2 / c.k;
      const mx = mid(from, from.x, this.w) + (mid(to, to.x, this.w) - mid(from, from.x, this.w)) * e;
      const my = mid(from, from.y, this.h) + (mid(to, to.y, this.h) - mid(from, from.y, this.h)) * e;
      this.at = { x: mx - this.w / 2 / k, y: my - this.h / 2 / k, k };
      this.moved = true;
      this.paint(false);
      if (t < 1) requestAnimationFrame(step);
      else this.paint();
    };
    requestAnimationFrame(step);
  }

  fit(bounds = this.scene.bounds, animate = true) {
    this.touched = bounds !== this.scene.bounds;
    this.begun = false;
    const pad = 28;
    const legend = 24; // at the bottom of the window
    const k = Math.min(1.25, (this.w - 2 * pad) / Math.max(1, bounds.w), (this.h - legend - 2 * pad) / Math.max(1, bounds.h));
    const to = this.centred(bounds, Math.max(0.02, k));
    to.y += legend / 2 / to.k;
    if (animate) this.glide(to);
    else this.at = to;
  }

  /** The first view: all of it, or where it begins if all would be too small to read. */
  begin() {
    const { bounds } = this.scene;
    this.fit(bounds, false);
    this.begun = true; // until somebody moves it
    if (this.at.k >= LEAST) return;
    const room = this.w / LEAST;
    const x = bounds.w + 40 / LEAST < room ? bounds.x + (bounds.w - room) / 2 : bounds.x - 20 / LEAST;
    this.at = { x, y: bounds.y - 20 / LEAST, k: LEAST };
  }

  centred(b, k) {
    return { x: b.x + b.w / 2 - this.w / 2 / k, y: b.y + b.h / 2 - this.h / 2 / k, k };
  }

  /** Bring a box into view, large enough to be read. */
  centre(box) {
    const k = Math.max(this.at.k, Math.min(0.9, this.w / (box.w + 80)));
    this.glide(this.centred(box, box.open ? Math.min(k, (this.h - 40) / box.h, (this.w - 40) / box.w) : k));
  }

  isInView(box) {
    const { x, y, k } = this.at;
    return box.x >= x && box.y >= y && box.x + box.w <= x + this.w / k && box.y + box.h <= y + this.h / k && k > 0.35;
  }

  zoom(factor, px = this.w / 2, py = this.h / 2) {
    const k = Math.max(0.02, Math.min(4, this.at.k * factor));
    const { x, y, k: old } = this.at;
    this.gliding = null;
    this.touched = true;
    this.begun = false;
    this.onMove?.();
    this.at = { x: x + px / old - px / k, y: y + py / old - py / k, k };
    this.moved = true;
    this.paint(false);
  }

  pan(dx, dy) {
    this.gliding = null;
    this.touched = true;
    this.begun = false;
    this.onMove?.();
    this.at = { ...this.at, x: this.at.x - dx / this.at.k, y: this.at.y - dy / this.at.k };
    this.paint(false);
  }

  /** The innermost box at a place of the window. */
  boxAt(px, py) {
    const x = this.at.x + px / this.at.k;
    const y = this.at.y + py / this.at.k;
    const { boxes } = this.scene;
    let found = null;
    for (let i = 0; i < boxes.length; ) {
      const b = boxes[i];
      const isHit = x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h;
      if (isHit) found = b;
      i = b.open && !isHit ? b.end : i + 1;
    }
    return found && { ...found, inTitle: !found.open || y < found.y + Math.max(28, 16 / this.at.k) };
  }
}

/** For each box of two scenes where it begins and where it ends. */
function tween(old, scene, shift) {
  const oldById = new Map(old.boxes.map((b) => [b.item.id, b]));
  const newById = new Map(scene.boxes.map((b) => [b.item.id, b]));
  const moved = (b) => ({ x: b.x + shift.x, y: b.y + shift.y, w: b.w, h: b.h });
  const around = (item, boxes) => {
    for (let g = item.parent; g; g = g.parent) if (boxes.has(g.id)) return boxes.get(g.id);
    return null;
  };
  const boxes = [];
  for (const box of old.boxes) {
    if (newById.has(box.item.id)) continue;
    const goal = around(box.item, newById);
    const to = goal ? point(goal) : moved(box);
    boxes.push({ box, from: moved(box), to, alpha: (t) => 1 - t });
  }
  for (const box of scene.boxes) {
    const was = oldById.get(box.item.id);
    const source = was ?? around(box.item, oldById);
    const from = was ? moved(was) : source ? point(moved(source)) : box;
    boxes.push({ box, from, to: box, alpha: was ? () => 1 : (t) => t });
  }
  return { boxes };
}

const point = (b) => ({ x: b.x + b.w * 0.3, y: b.y + b.h * 0.3, w: b.w * 0.4, h: b.h * 0.4 });
