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
    this.made = new Map();
    for (const r of data.records) {
      if (r.kind === "op") this.made.set(r.values[0], (r.types ?? []).reduce((n, t) => n + typeBytes(t), 0));
    }
    this.seconds = new Map();
    this.total = 0;
    for (const kernel of data.kernels ?? []) this.share(kernel);
  }

  share(kernel) {
    if (!kernel.seconds || !kernel.values.length) return;
    this.total += kernel.seconds;
    const weights = kernel.values.map((v) => (this.made.get(v) ?? 0) + 64);
    const sum = weights.reduce((a, b) => a + b, 0);
    kernel.values.forEach((v, i) => {
      this.seconds.set(v, (this.seconds.get(v) ?? 0) + (kernel.seconds * weights[i]) / sum);
    });
  }

  /** Seconds and bytes of all leaves in an item. */
  of(tree, item) {
    let [seconds, made] = [0, 0];
    for (const leaf of [...tree.leavesOf(item), ...(item.isGroup && item.record ? [item] : [])]) {
      const value = leaf.record?.kind === "op" ? leaf.record.values[0] : undefined;
      seconds += this.seconds.get(value) ?? 0;
      made += this.made.get(value) ?? 0;
    }
    return { seconds, bytes: made };
  }
}
