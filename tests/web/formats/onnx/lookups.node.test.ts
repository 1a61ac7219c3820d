// Embeddings as blocks: a Gather of rows takes their codes, and makes floats of them with operators that every build of onnxruntime has.
import * as ort from 'onnxruntime-web';
import { compareModels, type PlanOptions, quantizeModel, readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, make } from './ort.js';

const [rows, columns] = [40, 96];

/** A table, and a product with it if it is tied. */
function lookup(indices: readonly (number | string)[], opset: number, tied: boolean) {
  return onnx.model(
    {
      nodes: [
        { op: 'Gather', in: ['e', 'i'], out: ['h'] },
        ...(tied
          ? [
              { op: 'Transpose', in: ['e'], out: ['t'], attributes: { perm: [1, 0] } },
              { op: 'MatMul', in: ['x', 't'], out: ['y'] },
            ]
          : [{ op: 'Identity', in: ['x'], out: ['y'] }]),
      ],
      initializers: [onnx.floatTensor('e', [rows, columns])],
      inputs: [
        ['i', indices, 7],
        ['x', [1, columns]],
      ],
      outputs: [
        ['h', [...indices, columns]],
        ['y', [1, tied ? rows : columns]],
      ],
    },
    { opset },
  );
}

const x = new ort.Tensor('float32', onnx.weights(columns), [1, columns]);
async function gathered(file: Uint8Array, indices: readonly number[], dims: readonly number[]) {
  const session = await ort.InferenceSession.create(file.slice(), { logSeverityLevel: 3 });
  try {
    const i = new ort.Tensor('int64', BigInt64Array.from(indices.map(BigInt)), dims);
    const { h } = await session.run({ i, x });
    return { dims: h?.dims, data: Float32Array.from(h?.data as Float32Array) };
  } finally {
    await session.release();
  }
}

/** The float16 nearest to a float32, ties to even. */
function nearestHalf(x: number): number {
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0] as number;
  const exponent = Math.max(((bits >>> 23) & 255) - 127, -14);
  const units = x / 2 ** (exponent - 10);
  const below = Math.floor(units);
  const isUp = units - below > 0.5 || (units - below === 0.5 && below % 2 !== 0);
  return (isUp ? below + 1 : below) * 2 ** (exponent - 10);
}

const choices: PlanOptions[] = (['q4', 'q4f16', 'q2', 'q2f16', 'q8-blocks'] as const).flatMap((to) =>
  [16, 32].flatMap((blockSize) => [false, true].map((zeroPoints): PlanOptions => ({ to, blockSize, zeroPoints }))),
);

describe('rows of blocks', () => {
  it.each(choices)('$to, $blockSize, zero points $zeroPoints', async (choice) => {
    // MatMulNBits of a tied table shows the values, which have to be the same to the last bit or two.
    const tied = await (await quantizeModel(lookup(['n'], 17, true), { ...choice, workers: 0 })).bytes();
    const { data: table } = await readFloats(tied, 'e');
    const alone = await (await quantizeModel(lookup(['n'], 17, false), { ...choice, workers: 0 })).bytes();
    expect(new TextDecoder('latin1').decode(alone)).not.toContain('GatherBlockQuantized');
    const wanted = [3, 0, rows - 1, 3, -2];
    for (const file of [tied, alone]) {
      const { dims, data } = await gathered(file, wanted, [wanted.length]);
      expect(dims).toEqual([wanted.length, columns]);
      for (const [i, row] of wanted.entries()) {
        for (let j = 0; j < columns; j++) {
          // The table is stored with its columns as rows: [K, N].
          const value = table[j * rows + ((row + rows) % rows)] as number;
          // With q4f16 and q2f16 the Gather gives float16: the product of a code and a scale is rounded once.
          expect(data[i * columns + j]).toBe(choice.to.endsWith('f16') ? nearestHalf(value) : value);
        }
      }
    }
  });

  it('take indices of any shape, also none at all', async () => {
    for (const dims of [[], [1], [2, 3], [0], [2, 0, 2], [1, 1, 1, 2]]) {
      const names = dims.map((_, i) => `d${i}`);
      const n = dims.reduce((a, b) => a * b, 1);
      const file = lookup(names, 17, false);
      const made = await (await quantizeModel(file, { to: 'q4', zeroPoints: true, workers: 0 })).bytes();
      const result = await gathered(
        made,
        Array.from({ length: n }, (_, i) => i),
        dims,
      );
      expect(result.dims).toEqual([...dims, columns]);
      expect(result.data.length).toBe(n * columns);
    }
  });

  it('run in old versions of the operators', async () => {
    for (const opset of [7, 10, 13, 23]) {
      const file = lookup(['n'], opset, true);
      const { report, bytes } = await quantizeModel(file, { to: 'q4', zeroPoints: true, workers: 0 });
      expect(report.tensors).toMatchObject([{ name: 'e', to: 'Q4 (32)' }]);
      expect((await gathered(await bytes(), [1], [1])).data.length).toBe(columns);
    }
  });
});

describe('weights alone', () => {
  const indices = ['i', [2, 3], 7] as const;
  const cases: readonly (readonly [name: string, file: Uint8Array<ArrayBuffer>])[] = [
    ['rows that are matrices', onnx.gather([40, 4, 48], [2, 3, 4, 48])()],
    ['columns, which share a scale', onnx.gather([64, 40], [64, 2, 3])({ axis: 1 })],
    [
      'rows of several lookups',
      onnx.model({
        nodes: [
          { op: 'Gather', in: ['w', 'i'], out: ['g'] },
          { op: 'Gather', in: ['w', 'last'], out: ['h'] },
          { op: 'Add', in: ['g', 'h'], out: ['y'] },
        ],
        initializers: [
          onnx.floatTensor('w', [40, 64]),
          onnx.tensor({ name: 'last', type: 7, dims: [], raw: onnx.int64s([-1]) }),
        ],
        inputs: [indices],
        outputs: [['y', [2, 3, 64]]],
      }),
    ],
  ];

  it.each(cases)('gather codes of %s, and no DequantizeLinear restores the whole table', async (_, file) => {
    for (const to of ['int8-weights', 'uint8-weights'] as const) {
      const { made, report } = await make(file, { to });
      expect(report.tensors.find(({ name }) => name === 'w')?.kept).toBeUndefined();
      expect(new TextDecoder('latin1').decode(made)).not.toMatch('DequantizeLinear');
      // Codes are found again with the scales that belong to them.
      const { tensors } = await compareModels(file, made, { workers: 0 });
      expect(tensors.find(({ name }) => name === 'w')?.error.sqnrDb, to).toBeGreaterThan(40);
      await expectLike(file, made, 0.999);
    }
  });
});
