// Where boxes of one group go: layers from top to bottom, few crossings, boxes near those they belong to.

const GAP = 22;
const LANE = 10; // width that a line passing a layer takes
const SWEEPS = 8;
const MOST_LANES = 12000;
const LONG = 24; // layers from which on boxes stand below each other rather than their lines
const SHAPE = 1.5; // width by height of a chart in columns
const TALL = 1400; // pixels from which on a chart may go on in another column
const GUTTER = 44; // between columns
const MARGIN = 26; // above and below them
const MOST_ACROSS = 80; // lines from one column to the next
export const HUB = 10; // users from which on a box is a hub, whose lines are drawn when it is chosen

/**
 * Lay out boxes in layers.
 *
 * @param {{w: number, h: number, pin?: "first" | "last"}[]} boxes in order of execution
 * @param {{a: number, b: number, da: number, db: number}[]} lines between them, with the distance of their
 *   ends from the middles of the boxes
 * @returns {{places: {x: number, y: number}[], paths: number[][], w: number, h: number}} middles of boxes, and
 *   for each line the points it goes through
 */
export function layOut(boxes, lines) {
  const ranks = findRanks(boxes, lines);
  const chart = new Chart(boxes, lines, ranks);
  chart.order();
  chart.align();
  return chart.result();
}

/** The layer of each box: below all those it takes from, but not higher up than needed. */
function findRanks(boxes, lines) {
  const down = withoutCircles(boxes.length, lines);
  const inner = down.filter(({ a, b }) => boxes[a].pin !== "first" && boxes[b].pin !== "last");
  const outs = boxes.map(() => []);
  const ins = boxes.map(() => []);
  for (const { a, b } of inner) {
    outs[a].push(b);
    ins[b].push(a);
  }
  const order = topological(boxes.length, outs, ins);
  const ranks = new Array(boxes.length).fill(0);
  for (const i of order) for (const j of outs[i]) ranks[j] = Math.max(ranks[j], ranks[i] + 1);
  for (const i of [...order].reverse()) {
    const lowest = Math.min(...outs[i].map((j) => ranks[j] - 1));
    if (outs[i].length && ins[i].length <= 1 && lowest > ranks[i] && !ins[i].length) ranks[i] = lowest;
  }
  const last = ranks.reduce((most, r) => Math.max(most, r), 0);
  return boxes.map((box, i) => (box.pin === "first" ? 0 : box.pin === "last" ? last + 2 : ranks[i] + 1));
}

/** The lines with those turned round that close a circle. */
function withoutCircles(count, lines) {
  const outs = Array.from({ length: count }, () => []);
  for (const line of lines) outs[line.a].push(line);
  const state = new Uint8Array(count);
  const turned = new Set();
  for (let start = 0; start < count; start++) {
    if (state[start]) continue;
    const stack = [[start, 0]];
    state[start] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1];
      const [i, k] = top;
      if (k === outs[i].length) {
        state[i] = 2;
        stack.pop();
        continue;
      }
      top[1] += 1;
      const line = outs[i][k];
      if (state[line.b] === 1) turned.add(line);
      else if (!state[line.b]) {
        state[line.b] = 1;
        stack.push([line.b, 0]);
      }
    }
  }
  return lines.filter((l) => l.a !== l.b).map((l) => (turned.has(l) ? { ...l, a: l.b, b: l.a } : l));
}

function topological(count, outs, ins) {
  const waiting = ins.map((list) => list.length);
  const order = [];
  for (let i = 0; i < count; i++) if (!waiting[i]) order.push(i);
  for (let k = 0; k < order.length; k++) {
    for (const j of outs[order[k]]) if (--waiting[j] === 0) order.push(j);
  }
  return order;
}

/** Layers of cells; a cell is a box, or the place where a long line passes. */
class Chart {
  constructor(boxes, lines, ranks) {
    this.boxes = boxes;
    this.lines = lines;
    this.layers = Array.from({ length: ranks.reduce((most, r) => Math.max(most, r), 0) + 1 }, () => []);
    this.cells = boxes.map((box, i) => this.cell(ranks[i], box.w, i));
    this.chains = [];
    this.overs = 0; // lines that go on in another column
    let lanes = 0;
    for (const line of lines) {
      const [from, to] = [ranks[line.a], ranks[line.b]];
      const turned = from > to;
      const span = Math.abs(to - from);
      const chain = [this.cells[line.a]];
      const [top, bottom] = turned ? [line.b, line.a] : [line.a, line.b];
      const passing = [];
      if (lanes + span < MOST_LANES) {
        for (let r = ranks[top] + 1; r < ranks[bottom]; r++) passing.push(this.cell(r, LANE, -1));
        lanes += passing.length;
      }
      chain.push(...(turned ? passing.reverse() : passing), this.cells[line.b]);
      this.chains.push({ chain, line });
      this.connect(chain, line, turned);
    }
  }

  cell(rank, w, box) {
    const cell = { rank, w, box, up: [], down: [], at: 0, x: 0 };
    cell.at = this.layers[rank].push(cell) - 1;
    return cell;
  }

  /** Tell neighbours of each other, with the distance of the line's end from the middle of the cell. */
  connect(chain, line, turned) {
    for (let i = 0; i + 1 < chain.length; i++) {
      const [p, q] = [chain[i], chain[i + 1]];
      const [dp, dq] = [i === 0 ? line.da : 0, i + 2 === chain.length ? line.db : 0];
      if (p.rank === q.rank) continue;
      let [upper, lower, du, dl] = turned ? [q, p, dq, dp] : [p, q, dp, dq];
      if (this.layers.length > LONG) du = dl = 0; // a long chain of straight lines would drift to one side
      upper.down.push({ cell: lower, own: du, other: dl });
      lower.up.push({ cell: upper, own: dl, other: du });
    }
  }

  /** Order the layers by the middle of what their cells hang on, from above and from below in turn. */
  order() {
    let best = Infinity;
    let kept = null;
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
      const downwards = sweep % 2 === 0;
      const layers = downwards ? this.layers : [...this.layers].reverse();
      for (const layer of layers) {
        for (const cell of layer) cell.key = middle(downwards ? cell.up : cell.down, cell);
        layer.sort((p, q) => p.key - q.key || p.at - q.at);
        layer.forEach((cell, i) => (cell.at = i));
      }
      const crossings = this.crossings();
      if (crossings < best) {
        best = crossings;
        kept = this.layers.map((layer) => [...layer]);
      }
    }
    if (kept) this.layers = kept;
    for (const layer of this.layers) layer.forEach((cell, i) => (cell.at = i));
  }

  /** A measure of crossings: how far lines run sideways, in places. */
  crossings() {
    let total = 0;
    for (const layer of this.layers) {
      for (const cell of layer) {
        for (const { cell: other } of cell.down) {
          const own = cell.at / Math.max(1, layer.length);
          total += Math.abs(own - other.at / Math.max(1, this.layers[other.rank].length));
        }
      }
    }
    return total;
  }

  /** Move cells to where their neighbours are, as near as the order allows. */
  align() {
    for (const layer of this.layers) {
      let x = 0;
      for (const cell of layer) {
        cell.x = x + cell.w / 2;
        x += cell.w + gapAfter(cell);
      }
      const shift = x / 2;
      for (const cell of layer) cell.x -= shift;
    }
    for (let pass = 0; pass < 10; pass++) {
      const downwards = pass % 2 === 0;
      const layers = downwards ? this.layers : [...this.layers].reverse();
      for (const layer of layers) settle(layer, downwards, pass > 5);
    }
  }

  result() {
    this.heights = this.layers.map((layer) =>
      layer.reduce((most, c) => Math.max(most, c.box >= 0 ? this.boxes[c.box].h : 0), 0),
    );
    const gaps = this.heights.map((_, i) => (i + 1 < this.heights.length ? this.room(i, this.heights) : 0));
    const { w, h } = this.place(gaps, this.breaks(gaps));
    const middleOf = (cell) => this.tops[cell.rank] + this.heights[cell.rank] / 2;
    const places = this.boxes.map((_, i) => ({ x: this.cells[i].x, y: middleOf(this.cells[i]) }));
    const paths = this.chains.map(({ chain, line }) => this.path(chain, line, this.tops, this.heights));
    return { places, paths, w, h };
  }

  /** After which layers a chart that would be a sliver goes on beside itself, as a text does in columns. */
  breaks(gaps) {
    const total = this.heights.reduce((sum, h, i) => sum + h + gaps[i], 0);
    const [left, right] = extent(this.layers);
    const wide = right - left + GUTTER;
    const columns = Math.min(Math.round(Math.sqrt((SHAPE * total) / wide)), Math.floor(this.layers.length / 3));
    if (columns < 2 || total < TALL || total < 3 * wide) return [];
    const found = [];
    let [y, from] = [0, 0];
    const goal = total / columns;
    for (let i = 0; i + 2 < this.layers.length; i++) {
      y += this.heights[i] + gaps[i];
      if (y - from < goal || found.length + 1 >= columns) continue;
      found.push(this.fewest(i, found.at(-1) ?? 0));
      from = y;
    }
    const crossing = (i) => this.layers[i].reduce((n, c) => n + c.down.length, 0);
    return found.some((i) => crossing(i) > MOST_ACROSS) ? [] : found;
  }

  /** The layer near another one that the fewest lines leave. */
  fewest(i, least) {
    const crossing = (k) => this.layers[k].reduce((n, c) => n + c.down.length, 0);
    let best = i;
    for (let k = i - 1; k > Math.max(least + 1, i - 4, 0); k--) if (crossing(k) < crossing(best)) best = k;
    return best;
  }

  /** Give every layer its column and height; gives the size of all. */
  place(gaps, breaks) {
    const margin = breaks.length ? MARGIN : 0;
    const ends = [...breaks, this.layers.length - 1];
    this.tops = [];
    this.columns = [];
    let [x, tall, begin] = [0, 0, 0];
    ends.forEach((end, column) => {
      const layers = this.layers.slice(begin, end + 1);
      const [left, right] = extent(layers);
      let y = margin;
      layers.forEach((layer, i) => {
        this.tops.push(y);
        this.columns.push(column);
        for (const cell of layer) cell.x += x - left;
        y += this.heights[begin + i] + (begin + i < end ? gaps[begin + i] : 0);
      });
      this.lefts = [...(this.lefts ?? []), x];
      tall = Math.max(tall, y);
      x += right - left + GUTTER;
      begin = end + 1;
    });
    this.bottom = tall;
    return { w: Math.max(0, x - GUTTER), h: tall + margin };
  }

  /** The points of a line from the foot of a column, through the gutter, to the head of a later one. */
  turnOver(p, q, number) {
    const [above, below] = this.columns[p.rank] < this.columns[q.rank] ? [p, q] : [q, p];
    const shift = 3 * (number % 5);
    const [down, up] = [this.bottom + 6 + shift, MARGIN - 8 - shift];
    const gutter = this.lefts[this.columns[below.rank]] - GUTTER / 2 - 6 + shift;
    const points = [[above.x, down], [gutter, down], [gutter, up], [below.x, up]];
    return (above === p ? points : points.reverse()).flat();
  }

  /** The room below a layer: more where many lines cross or run far, little at the edge of a group. */
  room(i, heights) {
    const layer = this.layers[i];
    if (!layer.length) return 0;
    const busy = layer.reduce((n, c) => n + c.down.length, 0);
    const far = Math.max(0, ...layer.flatMap((c) => c.down.map((d) => Math.abs(d.cell.x - c.x))));
    const least = heights[i] < 2 || heights[i + 1] < 2 ? 8 : 20;
    return least + Math.min(24, busy) + Math.min(30, far / 12);
  }

  /** The points of a line: out of the first box, straight through each layer, into the last. */
  path(chain, line, tops, heights) {
    const first = chain[0];
    const last = chain[chain.length - 1];
    const rising = first.rank > last.rank;
    const edge = (cell, below) => {
      const mid = tops[cell.rank] + heights[cell.rank] / 2;
      return mid + ((below ? 1 : -1) * this.boxes[cell.box].h) / 2;
    };
    const points = [first.x + line.da, edge(first, !rising)];
    chain.forEach((cell, i) => {
      if (i && this.columns[cell.rank] !== this.columns[chain[i - 1].rank]) {
        points.push(...this.turnOver(chain[i - 1], cell, this.overs));
        this.overs += 1;
      }
      if (i === 0 || i === chain.length - 1) return;
      const [top, bottom] = [tops[cell.rank], tops[cell.rank] + heights[cell.rank]];
      points.push(cell.x, rising ? bottom : top, cell.x, rising ? top : bottom);
    });
    points.push(last.x + line.db, edge(last, rising));
    return points;
  }
}

/** How far to the left and right the cells of layers reach. */
function extent(layers) {
  let [left, right] = [Infinity, -Infinity];
  for (const layer of layers) {
    for (const cell of layer) {
      left = Math.min(left, cell.x - cell.w / 2);
      right = Math.max(right, cell.x + cell.w / 2);
    }
  }
  return left < right ? [left, right] : [0, 0];
}

const gapAfter = (cell) => (cell.box < 0 ? LANE / 2 : GAP);

function middle(neighbours, cell) {
  if (!neighbours.length) return cell.at;
  let total = 0;
  for (const n of neighbours) total += n.cell.at + n.other / 1e4;
  return total / neighbours.length;
}

/**
 * Put the cells of a layer where they want to be, without changing their order: least squares under the distances
 * that must be kept, by pooling neighbours that would overlap.
 */
function settle(layer, downwards, both) {
  const blocks = [];
  let offset = 0;
  for (const cell of layer) {
    offset += cell.w / 2;
    const near = both ? [...cell.up, ...cell.down] : downwards ? cell.up : cell.down;
    let want = cell.x;
    let weight = 0.1;
    if (near.length) {
      want = near.reduce((sum, n) => sum + n.cell.x + n.other - n.own, 0) / near.length;
      weight = cell.box < 0 ? 4 : 1 + 0.2 * near.length;
    }
    let block = { sum: (want - offset) * weight, weight, cells: [[cell, offset]] };
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].weight > block.sum / block.weight) {
      const before = blocks.pop();
      block = {
        sum: before.sum + block.sum,
        weight: before.weight + block.weight,
        cells: before.cells.concat(block.cells),
      };
    }
    blocks.push(block);
    offset += cell.w / 2 + gapAfter(cell);
  }
  for (const block of blocks) {
    for (const [cell, at] of block.cells) cell.x = block.sum / block.weight + at;
  }
}
