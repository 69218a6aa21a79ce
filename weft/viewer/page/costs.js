// Time and bytes of nodes: a kernel's time is shared out by what its nodes make.

const WIDTHS = { f64: 8, i64: 8, u64: 8, c64: 8, c128: 16, f16: 2, bf16: 2, i16: 2, u16: 2, i8: 1, u8: 1, bool: 1 };

/** The bytes of a type such as f32[2,3]; 0 where a size is open. */
function typeBytes(type) {
  const match = /^(\w+)\[([^\]]*)\]$/.exec(type);
  if (!match) return 0;
  const count = match[2] ? match[2].split(",").reduce((n, size) => n * Number(size), 1) : 1;
  return Number.isFinite(count) ? count * (WIDTHS[match[1]] ?? 4) : 0;
}

export class Costs {
  constructor(data) {
    this.data = data;
    this.total = 0;
    for (const { seconds, values } of data.kernels ?? []) if (seconds && values.length) this.total += seconds;
  }

  /** Bytes and seconds of nodes, found when somebody asks. */
  prepare() {
    this.made = new Map();
    this.seconds = new Map();
    const known = new Map();
    for (const { kind, types, values } of this.data.records) {
      if (kind !== "op") continue;
      if (!known.has(types)) known.set(types, (types ?? []).reduce((n, t) => n + typeBytes(t), 0));
      this.made.set(values[0], known.get(types));
    }
    for (const kernel of this.data.kernels ?? []) this.share(kernel);
  }

  share(kernel) {
    if (!kernel.seconds || !kernel.values.length) return;
    const weights = kernel.values.map((v) => (this.made.get(v) ?? 0) + 64);
    const sum = weights.reduce((a, b) => a + b, 0);
    kernel.values.forEach((v, i) => {
      this.seconds.set(v, (this.seconds.get(v) ?? 0) + (kernel.seconds * weights[i]) / sum);
    });
  }

  /** Seconds and bytes of all leaves in an item. */
  of(tree, item) {
    if (!this.made) this.prepare();
    let [seconds, made] = [0, 0];
    for (let place = item.lo; place < item.hi; place++) {
      const { record } = tree.at[place];
      const value = record.kind === "op" ? record.values[0] : undefined;
      seconds += this.seconds.get(value) ?? 0;
      made += this.made.get(value) ?? 0;
    }
    return { seconds, bytes: made };
  }
}
