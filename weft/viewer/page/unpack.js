// What Python packed: rows of numbers become records again, which share their words.

const SHARED = ["kind", "op", "types", "attrs", "numbers", "path", "part", "at", "gives"];

/** A node of a graph, with the fields that Python's table tells of; those without anything are undefined. */
class Record {
  constructor(row, words) {
    this.values = typeof row[0] === "number" ? [row[0]] : row[0].length ? row[0] : undefined;
    this.inputs = row[1] || undefined;
    for (let i = 0; i < SHARED.length; i++) this[SHARED[i]] = words[row[i + 2] ?? 0] || undefined;
  }
}

/** A graph that passes made: its records are listed when somebody asks. */
class Stage {
  constructor({ name, records, folds }) {
    this.name = name;
    this.folds = folds ?? {};
    this.stretches = records;
  }

  get records() {
    this.numbers ??= spread(this.stretches);
    return this.numbers;
  }
}

function spread(stretches) {
  const found = [];
  for (let i = 0; i < stretches.length; i += 2) {
    for (let k = 0; k < stretches[i + 1]; k++) found.push(stretches[i] + k);
  }
  return found;
}

/** The data of a page as its other modules know it. */
export function unpack(packed) {
  const { words, records, stages, backward } = packed;
  return {
    ...packed,
    records: records.map((row) => new Record(row, words)),
    stages: stages.map((stage) => new Stage(stage)),
    backward: backward && unpack(backward),
  };
}
