// The slider over the passes, and what each of them changed.

import { byId, fill, grouped, make } from "weft/dom.js";

export class Passes {
  constructor(app) {
    this.app = app;
    this.slider = byId("stage");
    const { stages } = app.data;
    this.slider.max = stages.length - 1;
    fill(byId("ticks"), ...stages.map((s, i) => make("option", { value: i, label: s.name })));
    byId("passes").hidden = stages.length < 2;
    this.slider.addEventListener("input", () => app.setStage(Number(this.slider.value)));
    this.known = [];
  }

  /** By value, the number of the record in a stage, which is read when somebody asks. */
  valuesOf(stage) {
    const { stages } = this.app.data;
    if (!stages[stage]) return undefined;
    this.known[stage] ??= this.recordsByValue(stages[stage]);
    return this.known[stage];
  }

  recordsByValue(stage) {
    const found = new Map();
    for (const number of stage.records) {
      const record = this.app.data.records[number];
      if (record.kind === "op") found.set(record.values[0], number);
    }
    return found;
  }

  /** What the pass that made a stage did to a node. */
  changeOf(item, stage) {
    const before = this.valuesOf(stage - 1);
    if (!before || item.record?.kind !== "op") return null;
    const was = before.get(item.record.values[0]);
    if (was === undefined) return "added";
    return was === item.number ? null : "changed";
  }

  /** Go back to the graph before a pass, and light up what the pass takes out. */
  showRemoved(stage) {
    this.app.setStage(stage - 1);
    const items = this.app.tree.at;
    this.app.light(items.filter((i) => i.record.kind === "op" && !this.valuesOf(stage).has(i.record.values[0])));
  }

  /** By item, what became of it and what is in it. */
  marks(tree, stage) {
    const found = new Map();
    for (const item of stage ? tree.at : []) {
      const kind = this.changeOf(item, stage);
      if (!kind) continue;
      for (const around of item.ancestors()) {
        const counts = found.get(around) ?? { added: 0, changed: 0 };
        counts[kind] += 1;
        found.set(around, counts);
      }
    }
    for (const [item, counts] of found) {
      const kind = counts.added ? "added" : "changed";
      found.set(item, { kind, text: badge(counts, item.isGroup) });
    }
    return found;
  }

  describe(stage) {
    const { stages } = this.app.data;
    this.slider.value = stage;
    byId("stage-name").textContent = stages[stage].name;
    const ops = this.app.tree.at.reduce((n, item) => n + (item.record.kind === "op" ? 1 : 0), 0);
    const parts = [`${grouped(ops)} ops`];
    if (stage > 0) {
      const [now, before] = [this.valuesOf(stage), this.valuesOf(stage - 1)];
      const added = [...now.keys()].filter((v) => !before.has(v)).length;
      const removed = [...before.keys()].filter((v) => !now.has(v)).length;
      const changed = [...now].filter(([v, n]) => before.has(v) && before.get(v) !== n).length;
      if (added) parts.push(", ", make("b", { class: "added" }, `+${added}`));
      if (removed) {
        const show = { title: "Show them before the pass", onclick: () => this.showRemoved(stage) };
        parts.push(", ", make("a", { class: "removed go", ...show }, `−${removed}`));
      }
      if (changed) parts.push(`, ${changed} changed`);
    }
    fill(byId("changes"), ...parts);
  }
}

function badge({ added, changed }, isGroup) {
  if (!isGroup) return added ? "+" : "Δ";
  return [added && `+${added}`, changed && `Δ${changed}`].filter(Boolean).join(" ");
}
