// Where values go, in flat arrays: places are those of the tree's leaves, so that a group is a stretch of them.

export class Net {
  constructor(tree) {
    this.tree = tree;
    const count = tree.at.length;
    this.ins = new Edges(count);
    this.outs = new Edges(count);
    const each = (use) => {
      for (let place = 0; place < count; place++) {
        const inputs = tree.at[place].record.inputs;
        if (!inputs) continue;
        for (let i = 0; i < inputs.length; i++) {
          const maker = tree.makers.get(inputs[i]);
          const from = maker?.lo;
          if (maker === undefined || from === place || inputs.indexOf(inputs[i]) !== i) continue;
          if (maker.isGroup && tree.at[place].isIn(maker)) continue; // a loop's value, seen from inside
          use(from, place, inputs[i]);
        }
      }
    };
    each((from, to) => {
      this.ins.room(to);
      this.outs.room(from);
    });
    this.ins.make();
    this.outs.make();
    each((from, to, value) => {
      this.ins.put(to, from, value);
      this.outs.put(from, to, value);
    });
    this.part = new Int8Array(count);
    tree.root.children.forEach((child) => {
      const part = ["forward", "backward", "optimizer"].indexOf(child.kind === "part" ? child.title : "") + 1;
      this.part.fill(part, child.lo, child.hi);
    });
  }

  /** Whether an edge is drawn only when one of its ends is chosen: to another part, or of a parameter from elsewhere. */
  isQuiet(from, to) {
    if (this.part[from] !== this.part[to] && this.part[from] && this.part[to]) return true;
    const { record, parent } = this.tree.at[from];
    return record.kind === "param" && !this.tree.at[to].isIn(parent);
  }

  /** What an item takes from, or what takes from it, each with the value. */
  *around(item, way) {
    const edges = this[way];
    const end = item.isGroup && item.record ? item.lo + 1 : item.hi; // of a loop its own, not those of its nodes
    for (let place = item.lo; place < end; place++) {
      for (let e = edges.start[place]; e < edges.start[place + 1]; e++) {
        const other = this.tree.at[edges.other[e]];
        if (!other.isIn(item)) yield { item: other, value: edges.value[e] };
      }
    }
  }
}

/** By place its edges: those of a place stand together. */
class Edges {
  constructor(count) {
    this.start = new Int32Array(count + 2);
  }

  room(place) {
    this.start[place + 2] += 1;
  }

  make() {
    for (let i = 1; i < this.start.length; i++) this.start[i] += this.start[i - 1];
    const total = this.start[this.start.length - 1];
    this.other = new Int32Array(total);
    this.value = new Int32Array(total);
  }

  put(place, other, value) {
    const at = this.start[place + 1]++;
    this.other[at] = other;
    this.value[at] = value;
  }
}
