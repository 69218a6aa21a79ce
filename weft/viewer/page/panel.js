// What is known of the chosen node: op, types, attributes, neighbours, kernel, time, values.

import { fill, grouped, make } from "weft/dom.js";
import { bytes, labelOf, nameOf, seconds } from "weft/draw.js";
import { showValue } from "weft/values.js";

const MANY = 12;

/** Show an item in the panel; without one, the graph as a whole. */
export function showItem(element, app, item) {
  if (!item) return showGraph(element, app);
  const record = item.record ?? {};
  const title = item.isGroup && !item.record ? nameOf(item) : record.op;
  const rows = [];
  const row = (name, ...content) => content.length && content[0] !== undefined && rows.push([name, content]);
  if (record.types?.length) row(record.types.length > 1 ? "types" : "type", record.types.join(", "));
  for (const [name, value] of Object.entries(record.attrs ?? {})) row(name, value);
  if (record.numbers) row("numbers", record.numbers.join(", "));
  const path = pathText(item);
  if (path) row("in", path);
  if (item.kind === "fold") row("holds", `${item.count} alike, ${labelOf(item)[1]}`);
  else if (item.isGroup) row("holds", `${grouped(item.leaves)} ops`);
  if (record.at) row("line", lineLink(app, record.at));
  else if (item.isGroup) {
    const place = app.source.placeOf(app.tree, item);
    if (place) row("source", lineLink(app, [place.file, place.define, place.name]));
  }
  row("takes", ...links(app, takes(app, item)));
  row("used by", ...links(app, users(app, item)));
  if (record.gives) row("gives", record.gives.slice(0, 4).join(", "));
  const kernel = item.kernel ?? app.kernelOf(item);
  if (kernel) {
    row("kernel", `${kernel.number}: ${kernel.ops || kernel.name}`);
    row("cost", costText(kernel));
  }
  const cost = app.costOf(item);
  if (cost.seconds) row("time", `${seconds(cost.seconds)} (${share(cost.seconds / app.totals.seconds)})`);
  if (cost.bytes) row("makes", bytes(cost.bytes));
  const list = make("dl", {}, ...rows.flatMap(([name, content]) => [make("dt", {}, name), make("dd", {}, ...content)]));
  const part = item.part ?? record.part;
  const chip = part ? make("span", { class: `chip ${part}` }, part) : null;
  const seen = app.player?.valueOf(item);
  fill(element, make("h2", {}, title, " ", chip), list, seen ? make("div", {}, ...seen.map(showValue)) : null);
}

function showGraph(element, app) {
  const { data, tree } = app;
  const parts = [make("h2", {}, data.name)];
  const facts = [["nodes", count(tree)]];
  if (data.kernels) facts.push(["kernels", `${data.kernels.length}`]);
  if (data.device) facts.push(["device", data.device]);
  if (data.seconds) facts.push(["a call", seconds(data.seconds)]);
  if (data.memory) facts.push(["memory", `${bytes(data.memory.arena)} between inputs and outputs, peak in step ${data.memory.peakStep}`]);
  const list = make("dl", {}, ...facts.flatMap(([k, v]) => [make("dt", {}, k), make("dd", { class: "plain" }, v)]));
  const lines = data.sources.length ? ", a line of the source to see its nodes" : "";
  parts.push(make("p", {}, `Click a box to look into it${lines}.`), list);
  if (data.note) parts.push(make("p", {}, data.note));
  const slow = (data.kernels ?? []).filter((k) => k.seconds).sort((a, b) => b.seconds - a.seconds).slice(0, 5);
  if (slow.length) {
    const rows = slow.flatMap((k) => [
      make("dt", {}, seconds(k.seconds)),
      make("dd", {}, make("a", { class: "go", onclick: () => app.chooseKernel(k) }, `${k.number}: ${k.ops || k.name}`), limitText(k)),
    ]);
    parts.push(make("p", {}, "Slowest kernels"), make("dl", {}, ...rows));
  }
  fill(element, ...parts);
}

function count(tree) {
  const groups = tree.groups.size - 1;
  const ops = tree.leaves.filter((l) => l.record.kind === "op").length;
  return `${grouped(ops)} ops${groups ? ` in ${groups} group${groups === 1 ? "" : "s"}` : ""}`;
}

function share(part) {
  return part < 0.0005 ? "under 0.1 %" : `${(100 * part).toFixed(1)} %`;
}

function pathText(item) {
  return item
    .ancestors()
    .slice(1)
    .reverse()
    .map((g) => g.title)
    .join(" › ");
}

function lineLink(app, [file, line, name]) {
  const text = `${app.data.sources[file].name}:${line}${name ? ` in ${name}` : ""}`;
  return make("a", { class: "go", onclick: () => app.source.show(file, line) }, text);
}

function takes(app, item) {
  return neighbours(app, item, "ins");
}

function users(app, item) {
  return neighbours(app, item, "outs");
}

function neighbours(app, item, way) {
  const found = new Set();
  const isMany = item.isGroup && !item.record; // of what goes into a group, what can be seen is enough
  for (const { item: other } of app.tree.net.around(item, way)) found.add(isMany ? app.tree.visible(other) : other);
  return [...found];
}

function links(app, items) {
  const shown = items.slice(0, MANY).flatMap((item, i) => [
    i ? ", " : "",
    make("a", { class: "go", onclick: () => app.choose(item, { reveal: true }) }, labelOf(item)[0]),
  ]);
  if (items.length > MANY) shown.push(` and ${items.length - MANY} more`);
  return shown;
}

function costText(kernel) {
  const time = kernel.seconds === null ? "" : `${seconds(kernel.seconds)}${kernel.runs > 1 ? ` in ${kernel.runs} runs` : ""}, `;
  return `${time}${bytes(kernel.bytes)} moved, ${grouped(kernel.flops)} flops${limitText(kernel)}`;
}

function limitText(kernel) {
  return kernel.limit ? `, ${kernel.limit} of the limit` : "";
}
