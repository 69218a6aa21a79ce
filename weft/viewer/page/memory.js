// The memory timeline: buffers as areas, from the step that fills them to the last that reads them.

import { byId, fill, make } from "weft/dom.js";
import { bytes, FONT } from "weft/draw.js";

const LEFT = 62;
const BOTTOM = 20;

export class Memory {
  constructor(app) {
    this.app = app;
    this.memory = app.data.memory;
    this.canvas = byId("timeline");
    this.button = byId("memory-button");
    if (!this.memory?.buffers.length) return;
    this.button.hidden = false;
    this.button.addEventListener("click", () => this.toggle());
    this.steps = Math.max(app.data.kernels.length, ...this.memory.buffers.map((b) => b.last));
    this.step = this.memory.peakStep;
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => this.point(null));
    this.canvas.addEventListener("click", () => this.click());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  toggle(open = byId("memory").hidden) {
    if (!this.steps) return;
    byId("memory").hidden = !open;
    this.button.textContent = open ? "Memory ▾" : "Memory ▴";
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.show(this.memory.peakStep);
  }

  /** Where a step begins, and where a byte of the arena lies. */
  scale() {
    const [w, h] = [this.canvas.clientWidth - LEFT - 8, this.canvas.clientHeight - BOTTOM - 16];
    const { arena } = this.memory;
    return { x: (step) => LEFT + ((step - 1) / this.steps) * w, y: (byte) => 16 + h - (byte / Math.max(1, arena)) * h };
  }

  draw() {
    const { canvas, memory, app } = this;
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
    if (!canvas.width) return;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const { x, y } = this.scale();
    this.areas = memory.buffers.map((b) => {
      const [left, right] = [x(b.first), x(b.last + 1)];
      return { b, x: left, y: y(b.offset + b.bytes), w: Math.max(1.5, right - left), h: Math.max(1, y(b.offset) - y(b.offset + b.bytes)) };
    });
    const chosen = new Set(app.chosen ? app.tree.leavesOf(app.chosen).flatMap((l) => l.record.values ?? []) : []);
    for (const area of this.areas) this.drawArea(ctx, area, chosen);
    this.drawAxes(ctx, x, y);
  }

  drawArea(ctx, { b, x, y, w, h }, chosen) {
    const { colours } = this.app;
    const part = this.app.tree.makers.get(b.value)?.record?.part ?? this.app.partOf(b.value);
    const [fillColour, line] = colours.tone[part] ?? colours.tone.op;
    const strong = b === this.pointed || chosen.has(b.value);
    ctx.fillStyle = strong ? colours.lit : b.peak ? line : fillColour;
    ctx.fillRect(x, y, w, h);
    ctx.strokeStyle = line;
    ctx.lineWidth = strong ? 1.5 : 0.6;
    ctx.strokeRect(x, y, w, h);
    if (w > 60 && h > 13) {
      ctx.fillStyle = strong || b.peak ? colours.paper : colours.ink;
      ctx.font = `10.5px ${FONT}`;
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, y, w, h);
      ctx.clip();
      ctx.fillText(`${b.op} ${b.type}`, x + 4, y + h / 2 + 3.5);
      ctx.restore();
    }
  }

  drawAxes(ctx, x, y) {
    const { colours } = this.app;
    const { memory } = this;
    ctx.fillStyle = colours.faint;
    ctx.font = `11px ${FONT}`;
    ctx.textAlign = "right";
    ctx.fillText(bytes(memory.arena), LEFT - 6, y(memory.arena) + 8);
    ctx.fillText("0", LEFT - 6, y(0));
    ctx.textAlign = "center";
    const bottom = this.canvas.clientHeight - 6;
    ctx.fillText("step 1", LEFT + 18, bottom);
    ctx.fillText(String(this.steps), x(this.steps + 1) - 12, bottom);
    const [px, sx] = [x(memory.peakStep + 0.5), x(this.step + 0.5)];
    ctx.fillStyle = colours.removed;
    ctx.fillText(`▼ peak ${bytes(memory.peak)}`, Math.min(Math.max(px, LEFT + 50), this.canvas.clientWidth - 70), 11);
    line(ctx, px, 14, bottom - 12, colours.removed, [4, 3]);
    if (this.step !== memory.peakStep) {
      line(ctx, sx, 14, bottom - 12, colours.ink, []);
      ctx.fillStyle = colours.ink;
      ctx.fillText(`${this.step}`, sx, bottom);
    }
  }

  hover(event) {
    const { x } = this.scale();
    const width = x(2) - x(1);
    this.step = Math.max(1, Math.min(this.steps, Math.floor((event.offsetX - LEFT) / width) + 1));
    const [px, py] = [event.offsetX, event.offsetY];
    const isHit = (a) => px >= a.x && px <= a.x + a.w && py >= a.y && py <= a.y + a.h;
    const hit = [...this.areas].reverse().find(isHit);
    this.point(hit?.b ?? null);
    this.list();
  }

  point(buffer) {
    this.pointed = buffer;
    this.draw();
  }

  click() {
    if (this.pointed) return this.app.chooseValue(this.pointed.value);
    const kernel = this.app.data.kernels.find((k) => k.number === this.step);
    if (kernel) this.app.chooseKernel(kernel);
  }

  show(step) {
    this.step = step;
    this.draw();
    this.list();
  }

  /** Who is there at a step. */
  list() {
    const live = this.memory.buffers.filter((b) => b.first <= this.step && b.last >= this.step).sort((p, q) => q.bytes - p.bytes);
    const kernel = this.app.data.kernels.find((k) => k.number === this.step);
    const total = live.reduce((sum, b) => sum + b.bytes, 0);
    const rows = live.map((b) =>
      make(
        "li",
        { onclick: () => this.app.chooseValue(b.value), onmouseenter: () => this.point(b), onmouseleave: () => this.point(null) },
        make("span", {}, `${b.op} ${b.type}`),
        make("span", {}, bytes(b.bytes)),
      ),
    );
    const title = `Step ${this.step}${this.step === this.memory.peakStep ? ", the peak" : ""}: ${live.length} buffers, ${bytes(total)}`;
    const runs = make("small", {}, kernel ? kernel.ops || kernel.name : "");
    fill(byId("live"), make("h3", {}, title), make("div", {}, runs), make("ol", {}, ...rows));
  }
}

function line(ctx, x, top, bottom, colour, dashes) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.2;
  ctx.setLineDash(dashes);
  ctx.beginPath();
  ctx.moveTo(x, top);
  ctx.lineTo(x, bottom);
  ctx.stroke();
  ctx.setLineDash([]);
}
