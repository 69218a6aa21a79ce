// Play: one run, step by step in order of execution, with the values that flow.

import { byId, fill, make } from "weft/dom.js";
import { labelOf } from "weft/draw.js";
import { showValue } from "weft/values.js";

export class Player {
  constructor(app) {
    this.app = app;
    this.events = app.data.events;
    this.moment = -1;
    this.seen = new Map(); // by number of a value, what it was last
    this.done = new Map(); // by item, how many leaves in it have run
    byId("player").hidden = false;
    this.slider = byId("moment");
    this.slider.min = -1;
    this.slider.max = this.events.length - 1;
    this.slider.value = -1;
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value)));
    byId("play").addEventListener("click", () => this.toggle());
    byId("next").addEventListener("click", () => this.step(1));
    byId("back").addEventListener("click", () => this.step(-1));
    this.describe();
  }

  get isOn() {
    return this.moment >= 0;
  }

  toggle(on = !this.timer) {
    clearTimeout(this.timer);
    this.timer = null;
    byId("play").textContent = on ? "⏸" : "▶";
    byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
    if (!on) return;
    if (this.moment >= this.events.length - 1) this.goTo(-1);
    this.tick();
  }

  tick() {
    this.step(1);
    if (this.moment >= this.events.length - 1) return this.toggle(false);
    this.timer = setTimeout(() => this.tick(), this.pause());
  }

  pause() {
    return 1000 / Number(byId("speed").value);
  }

  step(by) {
    let to = this.moment + by;
    while (to > 0 && to < this.events.length - 1 && !this.app.tree.makers.has(this.events[to][0])) to += by;
    this.goTo(Math.max(-1, Math.min(this.events.length - 1, to)));
  }

  goTo(moment) {
    if (moment < this.moment) this.reset();
    for (let i = this.moment + 1; i <= moment; i++) this.enter(this.events[i]);
    this.moment = moment;
    this.slider.value = moment;
    this.began = performance.now();
    this.describe();
    this.app.showMoment();
  }

  reset() {
    this.seen.clear();
    this.done.clear();
    this.moment = -1;
  }

  /** Count again, in another tree. */
  recount() {
    const { moment } = this;
    this.reset();
    for (let i = 0; i <= moment; i++) this.enter(this.events[i]);
    this.moment = moment;
  }

  enter([value, results]) {
    const item = this.app.tree.makers.get(value);
    this.seen.set(value, results);
    for (const around of item?.ancestors() ?? []) this.done.set(around, (this.done.get(around) ?? 0) + 1);
  }

  /** The item that is being computed. */
  item() {
    return this.isOn ? this.app.tree.makers.get(this.events[this.moment][0]) : undefined;
  }

  valueOf(item) {
    return this.isOn && item.record?.values ? this.seen.get(item.record.values[0]) : undefined;
  }

  dim(item) {
    if (!this.isOn || item.record?.kind === "constant") return 1;
    if (item.record?.kind === "input" && this.done.has(item.parent)) return 1;
    const isResult = item.record?.kind === "output";
    if (isResult ? this.seen.has(item.record.inputs?.[0]) : this.done.has(item)) return 1;
    return isResult && item.record.numbers ? 1 : 0.3;
  }

  describe() {
    const item = this.item();
    const name = item ? labelOf(item)[0] : "";
    byId("moment-name").textContent = this.isOn ? `${this.moment + 1} of ${this.events.length}: ${name}` : `${this.events.length} steps`;
  }

  /** Put the values of the moment beside their box. */
  showCard(card, box, camera) {
    const item = this.item();
    if (!item || !box) return void (card.hidden = true);
    const results = this.events[this.moment][1];
    const part = item.record?.part;
    const chip = part ? make("span", { class: `chip ${part}` }, part === "backward" ? "gradient" : part) : null;
    fill(card, make("b", {}, labelOf(item)[0]), " ", chip, ...results.slice(0, 3).map(showValue));
    card.hidden = false;
    const { x, y, k } = camera.at;
    const left = Math.min(Math.max(8, (box.x + box.w - x) * k + 12), camera.w - card.offsetWidth - 8);
    const top = Math.min(Math.max(8, (box.y - y) * k), camera.h - card.offsetHeight - 8);
    card.style.transform = `translate(${left}px, ${top}px)`;
    card.style.left = card.style.top = "0";
  }

  /** Dots that run along the lines into the box of the moment. */
  drawFlow(ctx, view, scene, { into, around }) {
    const t = Math.min(1, (performance.now() - this.began) / Math.min(500, this.pause()));
    ctx.save();
    ctx.scale(view.k, view.k);
    ctx.translate(-view.x, -view.y);
    ctx.fillStyle = this.app.colours.lit;
    const now = this.app.tree.visible(this.item());
    for (const line of [...scene.lines, ...scene.quietLines(now)]) {
      if (!line.values.some((v) => into.has(v)) || (line.to && !around.has(line.to))) continue;
      const [x, y] = along(line.points, t);
      ctx.beginPath();
      ctx.arc(x, y, Math.max(4, 3 / view.k), 0, 7);
      ctx.fill();
    }
    ctx.restore();
    return t < 1;
  }
}

function along(p, t) {
  let total = 0;
  for (let i = 2; i < p.length; i += 2) total += Math.hypot(p[i] - p[i - 2], p[i + 1] - p[i - 1]);
  let left = t * total;
  for (let i = 2; i < p.length; i += 2) {
    const length = Math.hypot(p[i] - p[i - 2], p[i + 1] - p[i - 1]) || 1e-9;
    if (left <= length) return [p[i - 2] + ((p[i] - p[i - 2]) * left) / length, p[i - 1] + ((p[i + 1] - p[i - 1]) * left) / length];
    left -= length;
  }
  return [p[p.length - 2], p[p.length - 1]];
}
