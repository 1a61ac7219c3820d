// Random graphs: operators behind each other in orders that nobody thought of. onnxruntime's optimizer fuses some of them.
import { quantizeModel } from 'scalepoint/model';
import { it } from 'vitest';
import * as onnx from './encoder.js';
import { cosine, run } from './ort.js';

/** A graph in the making: one value goes through all nodes. */
class Chain {
  readonly nodes: onnx.TestNode[] = [];
  readonly initializers: onnx.Bytes[] = [];
  readonly what: string[] = [];
  value = 'x';
  shape: readonly number[];
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
    this.shape = this.pick([
      [2, 6, 32],
      [32, 6, 2],
      [2, 3, 4, 32],
      [4, 32],
    ]);
  }

  pick<T>(list: readonly T[]): T {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return list[Math.floor((this.#state / 2 ** 32) * list.length)] as T;
  }

  weight(dims: readonly number[], spread = 2 / Math.sqrt(dims.at(-1) as number)): string {
    const name = `w${this.initializers.length}`;
    this.initializers.push(onnx.floatTensor(name, dims, this.initializers.length + 1, spread));
    return name;
  }

  integers(values: readonly number[]): string {
    const name = `i${this.initializers.length}`;
    this.initializers.push(onnx.tensor({ name, type: 7, dims: [values.length], raw: onnx.int64s(values) }));
    return name;
  }

  add(
    op: string,
    more: readonly string[] = [],
    shape = this.shape,
    attributes: onnx.TestNode['attributes'] = {},
  ): void {
    const out = `${op}_${this.nodes.length}`;
    this.nodes.push({ op, name: out, in: [this.value, ...more], out: [out], attributes });
    this.what.push(op);
    this.value = out;
    this.shape = shape;
  }

  /** Adds a random node, if there is one for this shape. */
  grow(): void {
    const { shape } = this;
    const [rank, last = 1] = [shape.length, shape.at(-1)];
    const front = shape.slice(0, -1);
    const width = this.pick([32, 48]);
    const steps: Readonly<Record<string, () => void>> = {
      transpose: () => {
        const perm = this.pick(permutations[rank] ?? []);
        this.add(
          'Transpose',
          [],
          perm.map((from) => shape[from] as number),
          { perm },
        );
      },
      product: () => this.add('MatMul', [this.weight([last, width])], [...front, width]),
      turned: () => {
        const isTwice = this.pick([false, true]);
        let w = this.weight(isTwice ? [last, width] : [width, last]);
        for (let i = 0; i < (isTwice ? 2 : 1); i++) {
          const t = `${w}t`;
          this.nodes.push({ op: 'Transpose', in: [w], out: [t], attributes: this.pick([{}, { perm: [1, 0] }]) });
          w = t;
        }
        this.add('MatMul', [w], [...front, width]);
      },
      convolution: () => {
        if (rank < 3) return;
        const kernel = shape.slice(2).map(() => 3);
        const pads = [...kernel, ...kernel].map(() => 1);
        this.add('Conv', [this.weight([width, shape[1] as number, ...kernel], 0.3)], shape.with(1, width), { pads });
      },
      recurrence: () => {
        if (rank !== 3) return;
        const weights = [this.weight([1, 128, last], 0.4), this.weight([1, 128, 32], 0.4)];
        this.add('LSTM', weights, [front[0] as number, 1, front[1] as number, 32], { hidden_size: 32 });
        this.add('Squeeze', [this.integers([1])], [...front, 32]);
      },
      sum: () => this.add(this.pick(['Add', 'Mul']), [this.weight([last], 2)]),
      bend: () => this.add(this.pick(['Relu', 'Sigmoid', 'Tanh', 'Identity'])),
      share: () => this.add('Softmax', [], shape, { axis: -1 }),
      norm: () => this.add('LayerNormalization', [this.weight([last], 2)]),
      split: () => {
        if (rank === 4)
          this.add('Reshape', [this.integers([0, 0, -1])], [...shape.slice(0, 2), (shape[2] as number) * last]);
        else this.add('Unsqueeze', [this.integers([1])], [shape[0] as number, 1, ...shape.slice(1)]);
      },
      join: () => {
        if (last <= 64) this.add('Concat', [this.value], shape.with(-1, 2 * last), { axis: -1 });
      },
      slice: () => {
        const some = this.pick([1, shape[0] as number]);
        this.add('Slice', [this.integers([0]), this.integers([some]), this.integers([0])], shape.with(0, some));
      },
    };
    steps[this.pick(Object.keys(steps))]?.();
  }
}

const permutations: Readonly<Record<number, readonly (readonly number[])[]>> = {
  2: [[1, 0]],
  3: [
    [1, 0, 2],
    [0, 2, 1],
    [2, 0, 1],
    [1, 2, 0],
  ],
  4: [
    [0, 2, 1, 3],
    [0, 2, 3, 1],
    [0, 3, 1, 2],
    [1, 2, 0, 3],
  ],
};

/** Least cosine of outputs behind up to ten layers. Wrongly wired graphs give unrelated outputs. */
const limits = { fp16: 0.999, 'uint8-weights': 0.99, q8: 0.9, q4: 0.8 } as const;

it('random graphs run, and give nearly what they gave', async ({ expect }) => {
  for (let seed = 1; seed <= 16; seed++) {
    const chain = new Chain(seed * 7919);
    const input: onnx.TestValue = ['x', chain.shape];
    for (let i = 0; i < 8; i++) chain.grow();
    chain.add('MatMul', [chain.weight([chain.shape.at(-1) as number, 48])], [...chain.shape.slice(0, -1), 48]);
    const { nodes, initializers, value, shape, what } = chain;
    const file = onnx.model({ nodes, initializers, inputs: [input], outputs: [[value, shape]] });
    const before = (await run(file))[value] as Float32Array;
    for (const to of ['fp16', 'uint8-weights', 'q8', 'q4'] as const) {
      const made = await (await quantizeModel(file, { to, workers: 0 })).bytes();
      for (const level of ['disabled', 'all'] as const) {
        const after = (await run(made, level))[value] as Float32Array;
        expect(cosine(before, after), `${seed} ${to} ${level} ${what.join(' ')}`).toBeGreaterThan(limits[to]);
      }
    }
  }
});
