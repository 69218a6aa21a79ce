// Values of tensors: a small one as a table, of a larger one its range and how it is distributed.

import { make } from "weft/dom.js";

/** An element that shows what Python said of an array. */
export function showValue(seen) {
  const shape = make("small", {}, `[${seen.shape.join(", ")}]`);
  if (seen.data) return make("div", {}, shape, table(seen));
  if (seen.mean === undefined) return make("div", {}, shape, " no finite number");
  const text = ` ${number(seen.min)} … ${number(seen.max)}, mean ${number(seen.mean)}`;
  const most = Math.max(...seen.bars);
  const bars = seen.bars.map((n) => make("i", { style: `height: ${(100 * n) / most}%` }));
  const strange = seen.strange ? make("strong", {}, ` ${seen.strange} not finite`) : null;
  return make("div", {}, shape, text, strange, make("div", { class: "bars" }, ...bars));
}

function table({ shape, data }) {
  const last = shape.length ? shape[shape.length - 1] || 1 : 1;
  const columns = shape.length === 1 ? Math.min(8, last) : last;
  const numbers = data.filter((x) => typeof x === "number");
  const most = Math.max(1e-30, ...numbers.map(Math.abs));
  const rows = [];
  for (let i = 0; i < data.length; i += columns) {
    rows.push(make("tr", {}, ...data.slice(i, i + columns).map((x) => cell(x, most))));
  }
  return make("table", { class: "values" }, ...rows);
}

function cell(x, most) {
  if (typeof x !== "number") return make("td", {}, String(x));
  const share = Math.round((45 * Math.abs(x)) / most);
  const tone = x < 0 ? "var(--removed)" : "var(--accent)";
  return make("td", { style: `background: color-mix(in srgb, ${tone} ${share}%, transparent)` }, number(x));
}

export function number(x) {
  if (typeof x !== "number") return String(x);
  if (x === 0 || Number.isInteger(x)) return String(x);
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(3)));
}
