// sp.importance: sums of squares of what weights are multiplied with.
import { expect, it } from 'vitest';
import { quantizeModel } from '../../../web/src/model.js';
import { describeBuilds, expectCode, expectRefusal, Random } from '../support/support.js';
import { tinyLlama } from '../support/tiny-llama.js';

/** Sums of squares by column, in double. */
function squaresOf(x: Float32Array, columns: number): number[] {
  const sums = new Array<number>(columns).fill(0);
  for (const [i, v] of x.entries()) sums[i % columns]! += v * v;
  return sums;
}

/** The floats of a tensor of a matrix, which lie where its entry says; 32 bytes apart at least. */
async function importanceIn(file: Uint8Array<ArrayBuffer>) {
  const { inspectModel, readTensor } = await import('../../../web/src/model.js');
  const { tensors, metadata } = await inspectModel(file);
  const found = new Map<string, Float32Array>();
  for (const { name } of tensors) found.set(name, (await readTensor(file, name)).data as Float32Array);
  return { found, metadata };
}

describeBuilds('importance', (sp) => {
  it('adds up squares by column, from layers, arrays and tensors', async () => {
    const random = new Random(5);
    const [columns, outputs] = [96, 40];
    const layer = sp.matmulFloat(random.bell(columns * outputs), { shape: [outputs, columns] });
    const importance = sp.importance();
    const end = importance.watch(layer, 'blk.0.attn_q.weight', 'blk.0.attn_k.weight');
    const first = random.bell(columns * 3);
    const second = random.bell(columns * 2000);
    const y = layer.forward(first);
    layer.forward(second);
    end();
    layer.forward(random.bell(columns));
    const third = random.bell(7 * 64);
    importance.add('output.weight', { data: third, dims: [1, 7, 64] });
    importance.add('output.weight', [...third]);
    const expert = random.bell(4 * 32);
    importance.add('blk.0.ffn_up_exps.weight', expert, { columns: 32, matrices: 3, matrix: 2 });
    expect(importance.names).toEqual([
      'blk.0.attn_q.weight',
      'blk.0.attn_k.weight',
      'output.weight',
      'blk.0.ffn_up_exps.weight',
    ]);

    const { found, metadata } = await importanceIn(await importance.file({ datasets: ['a.txt', 'b.txt'], chunks: 4 }));
    expect(metadata).toMatchObject({
      'general.type': 'imatrix',
      'imatrix.datasets': ['a.txt', 'b.txt'],
      'imatrix.chunk_count': 4,
      'imatrix.chunk_size': 501,
    });
    const all = new Float32Array([...first, ...second]);
    for (const name of ['blk.0.attn_q.weight', 'blk.0.attn_k.weight']) {
      expect([...found.get(`${name}.in_sum2`)!]).toEqual(squaresOf(all, columns).map(Math.fround));
      expect([...found.get(`${name}.counts`)!]).toEqual([2003]);
    }
    expect([...found.get('output.weight.in_sum2')!]).toEqual(squaresOf(third, 64).map((v) => Math.fround(2 * v)));
    expect([...found.get('output.weight.counts')!]).toEqual([14]);
    expect([...found.get('blk.0.ffn_up_exps.weight.in_sum2')!]).toEqual([
      ...new Array(64).fill(0),
      ...squaresOf(expert, 32).map(Math.fround),
    ]);
    expect([...found.get('blk.0.ffn_up_exps.weight.counts')!]).toEqual([0, 0, 4]);
    // Watching changes nothing.
    expect(layer.forward(first)).toEqual(y);
    layer.dispose();
  });

  it('makes columns that are used more have smaller errors in model files', async () => {
    const model = tinyLlama({ layers: 1, rows: 8 });
    const importance = sp.importance();
    const name = 'blk.0.ffn_down.weight';
    const x = Float32Array.from({ length: 10 * 256 }, (_, i) => (i % 256 < 8 ? 30 : 0.1));
    importance.add(name, x, { columns: 256 });
    const file = await importance.file();
    const [plain, better] = await Promise.all(
      [{}, { importance: file }].map(async (options) => quantizeModel(model, { to: 'Q4_0', pure: true, ...options })),
    );
    expect(await better!.bytes()).not.toEqual(await plain!.bytes());
    const { error } = better!.report.tensors.find((tensor) => tensor.name === name)!;
    expect(error!.weightedL2!).toBeLessThan(error!.relativeL2);
  });

  it('refuses what is wrong, by name, and counts nothing then', async () => {
    const importance = sp.importance();
    const x = new Float32Array(64);
    expectRefusal(() => importance.add('a', x), RangeError, 'columns');
    expectRefusal(() => importance.add('a', x, { columns: 60 }), RangeError, 'x');
    expectRefusal(() => importance.add('a', x, { columns: 0 }), RangeError, 'columns');
    expectRefusal(() => importance.add('', x, { columns: 64 }), TypeError, 'name');
    expectRefusal(() => importance.add('a', x, { columns: 64, matrix: 1 }), RangeError, 'matrix');
    expectRefusal(() => importance.add('a', x, { column: 64 } as object), TypeError, 'column');
    importance.add('a', x, { columns: 32 });
    expectRefusal(() => importance.add('a', x, { columns: 64 }), RangeError, 'columns');
    expectRefusal(() => importance.add('a', x, { columns: 32, matrices: 2 }), RangeError, 'matrices');
    const bad = x.slice();
    bad[40] = Number.NaN;
    expectCode(() => importance.add('a', bad), 'NON_FINITE');
    const layer = sp.matmulFloat(x, { shape: [1, 64] });
    expectRefusal(() => importance.watch(layer), RangeError, 'names');
    expectRefusal(() => importance.watch(layer, 'a'), RangeError, 'columns');
    // A refused call leaves nothing behind: the length of its rows is not known from it.
    expectCode(() => importance.add('b', bad, { columns: 64 }), 'NON_FINITE');
    expectRefusal(() => importance.watch(layer, 'b', 'a'), RangeError, 'columns');
    expect(importance.names).toEqual(['a']);
    importance.add('b', x, { columns: 32 });
    layer.dispose();
    await expect(sp.importance().file()).rejects.toMatchObject({ option: 'names' });
    await expect(importance.file({ chunks: 0 })).rejects.toMatchObject({ option: 'chunks' });
    await expect(importance.file({ datasets: 'a' as unknown as string[] })).rejects.toMatchObject({
      option: 'datasets',
    });
    const { found } = await importanceIn(await importance.file());
    expect([...found.get('a.counts')!]).toEqual([2]);
  });
});
