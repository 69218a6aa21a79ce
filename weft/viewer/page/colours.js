// Colours: those of Okabe and Ito, which colour-blind people can tell apart, on light and on dark paper.

const LIGHT = {
  paper: "#ffffff",
  ink: "#1c2128",
  faint: "#6a7380",
  line: "#a9b1bb",
  far: "#c4cad2",
  group: ["#f6f8fa", "#eef1f5", "#e6eaf0"],
  groupLine: "#c3cad3",
  lit: "#e69f00",
  added: "#009e73",
  changed: "#b07800",
  removed: "#d55e00",
  tone: {
    forward: ["#dcebf6", "#0072b2"],
    backward: ["#f8e1ed", "#a8487c"],
    optimizer: ["#d3efe5", "#00795a"],
    op: ["#dcebf6", "#0072b2"],
    input: ["#ffffff", "#3b4754"],
    output: ["#3b4754", "#3b4754"],
    param: ["#fdf0d3", "#b07800"],
    constant: ["#f0f1f3", "#8a929c"],
  },
};

const DARK = {
  paper: "#15191f",
  ink: "#e6eaef",
  faint: "#98a2ae",
  line: "#5b6673",
  far: "#3c4550",
  group: ["#1b2027", "#20262e", "#262d36"],
  groupLine: "#3a444f",
  lit: "#f0b72f",
  added: "#2cc295",
  changed: "#e0a63a",
  removed: "#ff8a4c",
  tone: {
    forward: ["#17364c", "#56b4e9"],
    backward: ["#46263a", "#e08db9"],
    optimizer: ["#12392e", "#2cc295"],
    op: ["#17364c", "#56b4e9"],
    input: ["#15191f", "#c3ccd6"],
    output: ["#c3ccd6", "#c3ccd6"],
    param: ["#41340f", "#e0a63a"],
    constant: ["#272d35", "#7d8895"],
  },
};

export const palette = (dark) => (dark ? DARK : LIGHT);

/** The tone of an item, by what it is: what fills it, and its line. */
export function toneOf(item, colours) {
  const record = item.record;
  if (item.isGroup) return colours.tone[item.part] ?? colours.tone.op;
  if (record.kind !== "op") return colours.tone[record.kind] ?? colours.tone.op;
  return colours.tone[record.part] ?? colours.tone.op;
}

// Cividis, in a few steps: from dark blue to yellow, also in grey and for colour-blind people.
const HEAT = [
  [0, 34, 78],
  [33, 58, 109],
  [78, 87, 108],
  [125, 124, 120],
  [166, 157, 117],
  [211, 193, 100],
  [254, 232, 56],
];

/** The colour of a share of the most, between 0 and 1. */
export function heatColour(share) {
  const at = Math.max(0, Math.min(1, share)) * (HEAT.length - 1);
  const i = Math.min(HEAT.length - 2, Math.floor(at));
  const mixed = HEAT[i].map((c, k) => Math.round(c + (HEAT[i + 1][k] - c) * (at - i)));
  return `rgb(${mixed.join(",")})`;
}
