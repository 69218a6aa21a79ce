// The page: what is shown, what is chosen, and who is told of it.

import { Camera } from "weft/camera.js";
import { heatColour, palette } from "weft/colours.js";
import { Costs } from "weft/costs.js";
import { byId, fill, grouped, make } from "weft/dom.js";
import { bytes, labelOf, nameOf, seconds, sizeOf } from "weft/draw.js";
import { listen } from "weft/keys.js";
import { Memory } from "weft/memory.js";
import { buildTree, openSome } from "weft/model.js";
import { showItem } from "weft/panel.js";
import { Passes } from "weft/passes.js";
import { Player } from "weft/play.js";
import { buildScene } from "weft/scene.js";
import { Search } from "weft/search.js";
import { Source } from "weft/source.js";
import { unpack } from "weft/unpack.js";

const FEW = 8; // nodes of a line that are unfolded to

class App {
  constructor(data) {
    this.data = data;
    this.canvas = byId("canvas");
    this.open = new Set();
    this.stage = 0;
    this.lit = new Set(); // what can be seen of litItems
    this.litItems = [];
    this.colourBy = "part";
    this.isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.costs = new Costs(data);
    this.totals = { seconds: this.costs.total };
    this.camera = new Camera(this.canvas, () => this.look());
    this.camera.over = (ctx, view) => this.drawOver(ctx, view);
    this.camera.onMove = () => this.hover(null); // what was pointed at is elsewhere now
    this.source = new Source(this, byId("tabs"), byId("lines"));
    this.passes = new Passes(this);
    this.setTheme(this.isDark);
    this.buildTree(true);
    this.search = new Search(this);
    this.search.prepare();
    this.memory = new Memory(this);
    if (data.events?.length) this.player = new Player(this);
    this.prepareHead();
    this.layOut({ fit: true });
    this.choose(null);
  }

  get isLast() {
    return this.data.kernels && this.stage === this.data.stages.length - 1;
  }

  // What is shown

  buildTree(afresh) {
    const byKernel = Boolean(this.isLast) && byId("groups").value === "kernel";
    this.tree = buildTree(this.data, this.stage, byKernel);
    const known = new Set([...this.tree.groups.keys()].filter((id) => this.open.has(id)));
    for (const group of this.tree.groups.values()) group.open = known.has(group.id);
    this.tree.root.open = true;
    const parts = this.tree.root.children.filter((c) => c.kind === "part");
    if (afresh || known.size === 0 || (parts.length && !parts.some((part) => part.open))) {
      openSome(this.tree, Math.max(8, Math.min(20, Math.round(this.camera.h / 40))));
      this.remember();
    }
    this.marks = this.passes.marks(this.tree, this.stage);
    this.passes.describe(this.stage);
    this.source.index(this.tree);
    this.search?.prepare();
    byId("grouping").hidden = !this.isLast;
    const groups = this.tree.groups.size - 1;
    byId("counts").textContent = `${grouped(this.tree.leaves.length)} nodes${groups ? `, ${grouped(groups)} groups` : ""}`;
  }

  remember() {
    for (const group of this.tree.groups.values()) {
      if (group.open) this.open.add(group.id);
      else this.open.delete(group.id);
    }
  }

  layOut(how = {}) {
    this.remember();
    this.heatMost = null;
    this.light(this.litItems);
    this.camera.show(buildScene(this.tree, sizeOf), how);
    this.source.clear();
    if (this.chosen) this.showLine(this.chosen);
  }

  setStage(stage) {
    if (stage < 0 || stage >= this.data.stages.length || stage === this.stage) return;
    const wasByKernel = this.tree.byKernel;
    const id = this.chosen?.id;
    this.stage = stage;
    this.buildTree(false);
    this.chosen = this.tree.items.get(id) ?? null;
    this.light([]);
    this.player?.recount();
    const anchor = this.chosen ? this.tree.visible(this.chosen) : undefined;
    this.layOut({ fit: wasByKernel !== this.tree.byKernel || !this.camera.touched, anchor });
    this.showChosen();
  }

  toggle(group) {
    group.open = !group.open;
    if (!group.open && this.chosen?.isIn(group)) this.chosen = group;
    this.layOut({ anchor: group });
  }

  openAll(open) {
    for (const group of this.tree.groups.values()) group.open = open || group.kind === "root" || group.kind === "part";
    this.layOut({ fit: true });
  }

  // What is chosen

  choose(item, { reveal = false, go = reveal } = {}) {
    this.chosen = item;
    if (item && reveal && this.tree.reveal(item)) this.layOut({});
    this.light([]);
    this.showChosen();
    const box = item && this.camera.scene.at.get(this.tree.visible(item));
    if (box && go && !this.camera.isInView(box)) this.camera.centre(box);
  }

  showChosen() {
    const item = this.chosen;
    showItem(byId("node"), this, item);
    this.source.clear();
    if (item) this.showLine(item);
    this.memory?.areas && this.memory.draw();
    this.camera.paint();
  }

  showLine(item) {
    const at = item.record?.at;
    if (at) this.source.show(at[0], at[1]);
    else if (item.isGroup) this.source.showGroup(this.tree, item);
  }

  /** Light up items, or what of them can be seen. */
  light(items) {
    this.lit = new Set(items.map((item) => this.tree.visible(item)));
    this.litItems = items;
    this.camera.paint();
  }

  chooseLine(file, line, items) {
    this.chosen = null;
    if (items.length <= FEW && items.map((i) => this.tree.reveal(i)).some(Boolean)) this.layOut({});
    showItem(byId("node"), this, items.length === 1 ? items[0] : null);
    this.light(items);
    this.source.show(file, line, false);
    const boxes = [...this.lit].map((item) => this.camera.scene.at.get(item)).filter(Boolean);
    if (boxes.length && !boxes.every((b) => this.camera.isInView(b))) this.camera.fit(around(boxes));
  }

  chooseValue(value) {
    if (!this.tree.makers.has(value)) this.setStage(this.data.stages.length - 1);
    const item = this.tree.makers.get(value);
    if (item) this.choose(item, { reveal: true });
  }

  chooseKernel(kernel) {
    this.setStage(this.data.stages.length - 1);
    const items = kernel.values.map((v) => this.tree.makers.get(v)).filter(Boolean);
    const group = [...this.tree.groups.values()].find((g) => g.kernel === kernel) ?? items[0];
    if (group) this.choose(group, { reveal: true });
    this.light(items);
  }

  kernelOf(item) {
    const number = this.isLast ? this.tree.kernelOf.get(item.record?.values?.[0]) : undefined;
    return number === undefined ? undefined : this.data.kernels[number];
  }

  costOf(item) {
    return this.costs.of(this.tree, item);
  }

  partOf(value) {
    this.parts ??= new Map(this.data.records.flatMap((r) => (r.values ?? []).map((v) => [v, r.part])));
    return this.parts.get(value);
  }

  // Looks

  look() {
    const now = this.player?.item();
    const chosen = this.chosen && this.tree.visible(this.chosen);
    const near = (now && this.tree.visible(now)) ?? chosen ?? this.hovered;
    return {
      colours: this.colours,
      chosen,
      quiet: near && !this.camera.motion ? this.camera.scene.quietLines?.(near) : null,
      hovered: this.hovered,
      flow: now ? flowOf(now, false) : this.chosen && flowOf(this.chosen, true),
      lit: this.lit,
      marks: this.player?.isOn ? null : this.marks,
      now: now && this.tree.visible(now),
      dim: this.player?.isOn ? (item) => this.player.dim(item) : this.lit.size ? (item) => (this.lit.has(item) ? 1 : 0.45) : null,
      heat: this.colourBy === "part" ? null : (item) => this.heat(item),
    };
  }

  heat(item) {
    if (!this.heatMost) {
      this.heatOf = new Map();
      for (const box of this.camera.scene.boxes) if (!box.open) this.heatOf.set(box.item, this.costOf(box.item)[this.colourBy]);
      this.heatMost = 1e-30;
      for (const cost of this.heatOf.values()) this.heatMost = Math.max(this.heatMost, cost);
      this.showLegend();
    }
    if (item.record && item.record.kind !== "op") return undefined;
    return Math.sqrt((this.heatOf.get(item) ?? 0) / this.heatMost);
  }

  showCost(cost) {
    return this.colourBy === "seconds" ? seconds(cost) : bytes(cost);
  }

  setTheme(dark) {
    this.isDark = dark;
    this.colours = palette(dark);
    document.documentElement.classList.toggle("dark", dark);
    this.camera.paint();
    this.memory?.areas && this.memory.draw();
    this.showLegend();
  }

  setColour(by) {
    this.colourBy = by;
    this.heatMost = null;
    this.showLegend();
    this.camera.paint();
  }

  showLegend() {
    const { tone } = this.colours;
    if (this.colourBy !== "part") {
      const steps = [0, 0.25, 0.5, 0.75, 1].map(heatColour).join(",");
      const scale = make("i", { class: "scale", style: `background: linear-gradient(90deg, ${steps})` });
      return fill(byId("legend"), make("span", {}, "0", scale, this.heatMost > 1e-29 ? this.showCost(this.heatMost) : ""));
    }
    const parts = new Set(this.data.records.map((r) => (r.kind === "op" ? r.part || "op" : r.kind)));
    const shown = ["forward", "backward", "optimizer", "op", "input", "param", "constant", "output"].filter((p) => parts.has(p));
    const name = { op: "operation", param: "parameter" };
    fill(
      byId("legend"),
      ...shown.map((p) =>
        make("span", {}, make("i", { style: `background: ${tone[p][0]}; border-color: ${tone[p][1]}` }), name[p] ?? p),
      ),
    );
  }

  prepareHead() {
    byId("name").textContent = this.data.name;
    const choices = [["part", "part"]];
    if (this.costs.total) choices.push(["seconds", "time"]);
    choices.push(["bytes", "bytes"]);
    fill(byId("colour"), ...choices.map(([value, name]) => make("option", { value }, name)));
    byId("colour").addEventListener("change", (e) => this.setColour(e.target.value));
    byId("groups").addEventListener("change", () => {
      this.buildTree(false);
      this.choose(null);
      this.layOut({ fit: true });
    });
    byId("fold").addEventListener("click", () => this.openAll(false));
    byId("unfold").addEventListener("click", () => this.openAll(true));
    byId("fit").addEventListener("click", () => this.camera.fit());
    byId("theme").addEventListener("click", () => this.setTheme(!this.isDark));
    byId("help").addEventListener("click", () => byId("keys").showModal());
  }

  // Play

  showMoment() {
    const item = this.player.item();
    const box = item && this.camera.scene.at.get(this.tree.visible(item));
    if (box && !this.camera.isInView(box)) this.camera.centre(box);
    if (item) this.showLine(item);
    if (!item) this.player.showCard(byId("card"), null);
    this.camera.paint();
  }

  drawOver(ctx, view) {
    if (!this.player?.isOn) return;
    const item = this.player.item();
    const now = item && this.tree.visible(item);
    this.player.showCard(byId("card"), now && this.camera.scene.at.get(now), this.camera);
    if (now && this.player.drawFlow(ctx, view, this.camera.scene, flowOf(item, false))) {
      requestAnimationFrame(() => this.camera.paint(false));
    }
  }

  hover(box) {
    const item = box?.item;
    if (item === this.hovered) return;
    this.hovered = item;
    if (this.camera.isSmall) this.camera.paint();
    const tip = byId("tip");
    tip.hidden = !item || box.open;
    if (tip.hidden) return;
    const r = item.record ?? {};
    const where = r.at ? `${this.data.sources[r.at[0]].name}:${r.at[1]}` : "";
    const numbers = Object.entries(r.attrs ?? {}).map(([k, v]) => `${k}=${v}`).join(", ");
    const cost = this.colourBy === "part" ? "" : this.showCost(this.costOf(item)[this.colourBy]);
    const rest = [labelOf(item)[1], numbers, where, cost].filter(Boolean);
    fill(tip, make("b", {}, r.op ?? nameOf(item)), ...rest.map((text) => make("div", {}, make("small", {}, text))));
  }
}

/** What an item takes and gives, and the groups around it. */
function flowOf(item, gives) {
  const { inputs, values } = item.record ?? {};
  return { into: new Set(inputs), out: new Set(gives ? values : []), around: new Set(item.ancestors()) };
}

function around(boxes) {
  const x = Math.min(...boxes.map((b) => b.x));
  const y = Math.min(...boxes.map((b) => b.y));
  return { x, y, w: Math.max(...boxes.map((b) => b.x + b.w)) - x, h: Math.max(...boxes.map((b) => b.y + b.h)) - y };
}

/** The graph that the address asks for: a function's own, or that of its gradient. */
function chosenData() {
  const data = unpack(JSON.parse(byId("data").textContent));
  const wantsBackward = location.hash === "#backward" && data.backward;
  byId("which").hidden = !data.backward;
  byId("graphs").value = wantsBackward ? "backward" : "forward";
  byId("graphs").addEventListener("change", (event) => {
    location.hash = event.target.value;
    location.reload();
  });
  return wantsBackward ? { ...data.backward, name: data.name } : data;
}

const app = new App(chosenData());
listen(app);
globalThis.weft = app; // for the console, and for tests
document.documentElement.dataset.ready = String(Math.round(performance.now()));
