// Importance matrices: whole files beside those of llama_model_quantize, and what is wrong with matrices.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { ggmlType } from '../../../../web/src/formats/gguf/contents.js';
import { readGguf } from '../../../../web/src/formats/gguf/header.js';
import type { GgufTarget } from '../../../../web/src/formats/gguf/targets.js';
import { planModel, type QuantizeModelOptions, quantizeModel, readFloats } from '../../../../web/src/model.js';
import {
  type Activations,
  activationsOf,
  matrixFile,
  matrixPairs,
  matrixTensors,
  meansOf,
  oldMatrixFile,
  oldTail,
} from '../../support/importance.js';
import { fileTypes, llamaQuantize, nativeTargets } from '../../support/llama.js';
import { needNative } from '../../support/native.js';
import { expectNative, expectSameFile, native } from '../../support/native-files.js';
import { expectRecorded, isSlowFile } from '../../support/slow-native.js';
import { Random } from '../../support/support.js';
import { ggufFile, type TinyOptions, tinyLlama } from '../../support/tiny-llama.js';

needNative();

const all = nativeTargets.filter((to) => !['F32', 'F16', 'BF16'].includes(to));
/** Those whose mixtures look at layers, or at the matrix. */
const mixed: readonly GgufTarget[] = ['Q4_0', 'Q5_0', 'Q2_K_S', 'Q3_K_M', 'Q4_K_M', 'IQ4_NL', 'IQ4_XS', 'MXFP4_MOE'];
/** Those of points on a grid, which take a matrix or have other mixtures with one. */
const grids = all.filter((to) => /^IQ[123]_/.test(to));

const activations = async (file: Uint8Array) => activationsOf((await readGguf(await openSource(file))).tensors);

/** Metadata about a matrix that llama-quantize, the program, adds. */
const facts = (count: number, chunks = 123n, dataset = 'calibration.txt') =>
  [
    ['quantize.imatrix.dataset', dataset],
    ['quantize.imatrix.entries_count', BigInt(count)],
    ['quantize.imatrix.chunks_count', chunks],
  ] as const;

it('takes a matrix of sp.importance as the one of llama-imatrix', async () => {
  using sp = await load();
  const file = tinyLlama({ layers: 2, rows: 4, experts: 3 });
  const known = await activations(file);
  const importance = sp.importance();
  const counted = known.map(({ name, sums, counts }, k) => {
    const columns = sums.length / counts.length;
    const all = { name, sums: new Float32Array(sums.length), counts: counts.map((_, matrix) => matrix) };
    for (const [matrix, rows] of all.counts.entries()) {
      const x = new Random(40 + k + matrix).bell(rows * columns);
      importance.add(name, x, { columns, matrix, matrices: counts.length });
      const squares = new Float64Array(columns);
      for (const [i, v] of x.entries()) squares[i % columns]! += v * v;
      all.sums.set(squares, matrix * columns);
    }
    return all;
  });
  // Weights that were never used are not in the file. Of a weight with matrices, those that were never used count alike.
  const used = counted.filter(({ counts }) => counts.some((count) => count > 0));
  expect(used.length).toBeGreaterThan(3);
  const named = used.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const made = await importance.file({ datasets: ['calibration.txt', 'more.txt'], chunks: 123, chunkSize: 512 });
  expectSameFile(made, matrixFile(named), 'the matrix');
  const options = { importance: meansOf(used), metadata: facts(used.length) };
  await expectNative(file, 'Q4_K_M', { importance: made }, options);
});

it('counts weights whose rows no long blocks divide, or refuses them', async () => {
  const file = tinyLlama({ embedding: 288, feedForward: 256, layers: 1 });
  const { tensors, totals } = await planModel(file, { to: 'Q4_K_M' });
  const size = (some: typeof tensors) =>
    some.reduce((sum, { shape }) => sum + shape.reduce((product, n) => product * n, 1), 0);
  // Rows of ffn_down are whole blocks. Without them, the output layer has 8 bits by the mixture itself.
  const others = tensors.filter(({ name, kept, shape }) => !kept && shape.at(-1) === 288 && name !== 'output.weight');
  expect(others.length).toBeGreaterThan(5);
  expect(totals.fellBack).toBe(size(others) / size(tensors));
  await expect(planModel(file, { to: 'Q4_K_M', fallback: false })).rejects.toMatchObject({
    code: 'UNSUPPORTED_DTYPE',
    tensor: expect.any(String),
    message: expect.stringMatching(/rows of 288 are not a multiple of Q[46]_K's blocks of 256; .*keep/),
  });
  for (const [model, to] of [
    [tinyLlama({ layers: 1 }), 'Q4_K_M'],
    [file, 'Q8_0'],
  ] as const)
    expect((await planModel(model, { to, fallback: false })).totals).not.toHaveProperty('fellBack');
});

describe('a GGUF file with an importance matrix', () => {
  it.each<[what: string, options: TinyOptions, targets?: readonly GgufTarget[]]>([
    ['rows of 512 and 768', { embedding: 512, feedForward: 768, rows: 7, layers: 1, source: 'F32' }],
    ['9 layers', { layers: 9, rows: 3 }, [...mixed, ...grids]],
    [
      'tied embeddings and few heads of keys',
      { layers: 9, rows: 2, tied: true, heads: 8, headsKv: 2 },
      [...mixed, ...grids],
    ],
    ['4 experts', { experts: 4, rows: 3, layers: 9 }, [...mixed, ...grids]],
    ['8 experts', { experts: 8, rows: 2, layers: 9 }, [...mixed, ...grids]],
  ])('becomes what llama-quantize makes of it with %s', async (what, options, targets = all) => {
    const file = tinyLlama(options);
    const known = await activations(file);
    const importance = matrixFile(known);
    for (const to of targets) {
      const nativeOptions = { importance: meansOf(known), metadata: facts(known.length) };
      if (!isSlowFile(to)) {
        await expectNative(file, to, { importance }, nativeOptions);
        continue;
      }
      const made = await (await quantizeModel(file, { to, importance, workers: 0 })).bytes();
      await expectRecorded(`${to}, ${what}`, made, () => native(file, to, nativeOptions));
    }
  });

  it('becomes it with rows that no long blocks fit', async () => {
    const file = tinyLlama({ embedding: 288, feedForward: 64, layers: 2, rows: 3 });
    const known = await activations(file);
    const nativeOptions = { importance: meansOf(known), metadata: facts(known.length) };
    for (const to of ['Q4_K_M', 'Q2_K', 'IQ4_XS', 'Q3_K_L', 'IQ3_M', 'IQ2_XXS'] as const) {
      await expectNative(file, to, { importance: matrixFile(known) }, nativeOptions);
    }
  });

  it('keeps the values of columns that no input reached, unless the bytes of llama-quantize are asked for', async () => {
    const file = tinyLlama({ layers: 1, rows: 4, source: 'F32' });
    const [first, ...others] = (await activations(file)) as [Activations, ...Activations[]];
    // The first 256 columns were never reached: whole blocks of each type.
    const sums = first.sums.map((sum, i) => (i < 256 ? 0 : sum));
    const known = [{ ...first, sums }, ...others];
    const importance = matrixFile(known);
    const nativeOptions = { importance: meansOf(known), metadata: facts(known.length) };
    const original = (await readFloats(file, first.name)).data;
    const dbIn = async (bytes: Uint8Array) => {
      const { data, shape } = await readFloats(bytes, first.name);
      const rows = Array.from({ length: shape[0]! }, (_, row) => row * shape[1]!);
      const squares = (valueAt: (i: number) => number) =>
        rows.reduce(
          (sum, at) => sum + Array.from({ length: 256 }, (_, i) => valueAt(at + i) ** 2).reduce((a, b) => a + b),
          0,
        );
      return 10 * Math.log10(squares((i) => original[i]!) / squares((i) => original[i]! - data[i]!));
    };
    for (const to of ['Q4_0', 'Q6_K', 'IQ4_NL'] as const) {
      await expectNative(file, to, { importance, unseenColumns: 'zero', pure: true }, { ...nativeOptions, pure: true });
      const zeroed = await quantizeModel(file, { to, importance, unseenColumns: 'zero', pure: true });
      const floored = await quantizeModel(file, { to, importance, pure: true });
      const plain = await quantizeModel(file, { to, pure: true });
      const note = { kind: 'unseenColumns', tensors: [first.name], columns: 256 };
      for (const { report } of [zeroed, floored]) expect(report.notes).toContainEqual(expect.objectContaining(note));
      expect(await dbIn(await zeroed.bytes()), to).toBe(0);
      // As good as without a matrix, within a decibel: weights of one size search for scales by another rule than no weights do.
      expect(await dbIn(await floored.bytes()), to).toBeGreaterThan((await dbIn(await plain.bytes())) - 1);
    }
  });

  it('becomes it with the older form, with rules, without the mixture and in pieces', async () => {
    const file = tinyLlama({ layers: 3, rows: 40, source: 'F32' });
    const known = (await activations(file)).map((one) => ({ ...one, counts: one.counts.slice(0, 1) }));
    const nativeOptions = { importance: meansOf(known), metadata: facts(known.length, 77n, 'old.txt') };
    const importance = oldMatrixFile(known);
    await expectNative(file, 'Q4_K_M', { importance }, nativeOptions);
    await expectNative(file, 'Q4_0', { importance, workers: 2 }, nativeOptions);
    await expectNative(file, 'IQ4_NL', { importance, pure: true }, { ...nativeOptions, pure: true });
    const rules = [{ match: /ffn_up/, to: 'Q5_1' }];
    const overrides = rules.map(({ match, to }) => [match.source, ggmlType(to).id] as const);
    await expectNative(file, 'Q2_K_S', { importance, rules }, { ...nativeOptions, overrides });
  });

  it('names the file as it was given, in 127 bytes, and the metadata before it', async () => {
    const file = tinyLlama({ layers: 1, rows: 2, pairs: [['quantize.imatrix.entries_count', 'u32', 7]] });
    const known = await activations(file);
    const folder = mkdtempSync(join(tmpdir(), 'scalepoint-imatrix-'));
    try {
      for (const name of ['a.gguf', `${'ü'.repeat(100)}.dat`]) {
        const importance = join(folder, name);
        writeFileSync(importance, name.endsWith('.dat') ? oldMatrixFile(known, new Uint8Array()) : matrixFile(known));
        const path = Buffer.from(importance).subarray(0, 127).toString('latin1');
        const bytes = await (
          await quantizeModel(file, { to: 'Q4_0', workers: 0, importance, metadata: { 'general.name': 'Name' } })
        ).bytes();
        const header = Buffer.from(bytes).toString('latin1', 0, 4000);
        expect(header).toContain(
          `quantize.imatrix.file\x08\0\0\0${String.fromCharCode(path.length)}\0\0\0\0\0\0\0${path}`,
        );
        expect(header.indexOf('general.name')).toBeLessThan(header.indexOf('quantize.imatrix.file'));
        expect(header.includes('chunks_count')).toBe(name === 'a.gguf');
        const { metadata } = await readGguf(await openSource(bytes));
        expect(metadata['quantize.imatrix.entries_count']).toBe(known.length);
      }
      const named = new File([matrixFile(known)], 'named.gguf');
      const result = await quantizeModel(file, { to: 'Q4_0', workers: 0, importance: named });
      const { metadata } = await readGguf(await openSource(await result.bytes()));
      expect(metadata['quantize.imatrix.file']).toBe('named.gguf');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('uses the entries that are included, and those that are not excluded', async () => {
    const file = tinyLlama({ layers: 2, rows: 3 });
    const known = await activations(file);
    const importance = matrixFile(known);
    for (const [options, isIn] of [
      [{ includeWeights: ['attn_v', 'ffn_down'] }, (name: string) => /attn_v|ffn_down/.test(name)],
      [{ excludeWeights: ['attn_', 'ffn_up'] }, (name: string) => !/attn_|ffn_up/.test(name)],
    ] as const) {
      const some = known.filter(({ name }) => isIn(name));
      const nativeOptions = { importance: meansOf(some), metadata: facts(some.length) };
      await expectNative(file, 'Q4_0', { importance, ...options }, nativeOptions);
    }
    // Without any of them there is no matrix.
    await expectNative(file, 'Q4_0', { importance, includeWeights: ['nothing'] }, {});
  });

  it('tells what has no entry, what was never active, and what fits nothing', async () => {
    const file = tinyLlama({ layers: 1, rows: 2 });
    const known = await activations(file);
    const some = known
      .filter(({ name }) => !name.includes('attn_k'))
      .map((one) => (one.name.includes('ffn_up') ? { ...one, counts: [0] } : one));
    const embedding = { name: 'token_embd.weight', sums: new Float32Array(3).fill(1), counts: [1] };
    const other = { name: 'blk.7.attn_q.weight', sums: new Float32Array(8).fill(2), counts: [3] };
    const given = [...some, embedding, other];
    const { notes } = await planModel(file, { to: 'Q4_0', importance: matrixFile(given) });
    expect(notes).toEqual([
      {
        kind: 'noImportance',
        tensors: ['token_embd.weight', 'blk.0.attn_k.weight'],
        text: 'quantized without importance: no entry in the matrix for "token_embd.weight", "blk.0.attn_k.weight"',
      },
      {
        kind: 'partialImportance',
        tensors: ['blk.0.ffn_up.weight'],
        matrices: 1,
        text:
          '1 matrix was never active when the importance matrix was made, such as experts that no token reached; ' +
          'all of their columns weigh alike: "blk.0.ffn_up.weight"',
      },
      {
        kind: 'unusedImportance',
        tensors: ['blk.7.attn_q.weight'],
        text: 'in the importance matrix but not quantized by it: "blk.7.attn_q.weight"',
      },
    ]);
    await expectNative(
      file,
      'Q4_0',
      { importance: matrixFile(given) },
      { importance: meansOf(given), metadata: facts(given.length) },
    );
  });

  it('is refused where the matrix is that of another model, or has too little', async () => {
    const file = tinyLlama({ layers: 1, rows: 2 });
    const known = await activations(file);
    const half = known.map((one) => ({ ...one, sums: one.sums.slice(0, 128) }));
    const native = llamaQuantize(file, fileTypes.Q4_0!, { importance: meansOf(half) });
    expect(native).toMatch(/imatrix size 128 is different from tensor size 256/);
    const made = planModel(file, { to: 'Q4_0', importance: matrixFile(half) });
    await expect(made).rejects.toThrow(
      expect.objectContaining({ code: 'BAD_FILE', tensor: expect.stringContaining('weight') }),
    );
    // Q2_K_S asks for all of them.
    const some = known.filter(({ name }) => !name.includes('ffn_up'));
    expect(llamaQuantize(file, fileTypes.Q2_K_S!, { importance: meansOf(some) })).toMatch(
      /Missing importance matrix for tensor/,
    );
    const lacking = planModel(file, { to: 'Q2_K_S', importance: matrixFile(some) });
    await expect(lacking).rejects.toThrow(expect.objectContaining({ code: 'BAD_FILE', tensor: 'blk.0.ffn_up.weight' }));
    await expect(planModel(file, { to: 'Q2_K_S' })).rejects.toThrow(
      expect.objectContaining({ option: 'importance', name: 'RangeError' }),
    );
  });
});

describe('an importance matrix', () => {
  const model = tinyLlama({ layers: 1, rows: 2 });
  const refusal = async (importance: Uint8Array) => {
    const folder = mkdtempSync(join(tmpdir(), 'scalepoint-imatrix-'));
    const output = join(folder, 'out.gguf');
    try {
      await quantizeModel(model, { to: 'Q4_0', workers: 0, importance, output });
      return undefined;
    } catch (error) {
      // Nothing is written.
      expect(readdirSync(folder)).toEqual([]);
      const { code, message } = error as { code?: string; message: string };
      expect([code, message]).toEqual(['BAD_FILE', expect.any(String)]);
      return message;
    } finally {
      rmSync(folder, { recursive: true });
    }
  };

  it('is refused at every length but the whole', async () => {
    const [first] = await activations(model);
    const small = [{ ...first!, sums: first!.sums.slice(0, 256) }];
    const whole = oldMatrixFile(small, new Uint8Array());
    for (let length = 0; length < whole.length; length++) {
      if (length > 60 && length % 97 !== 0) continue;
      expect(await refusal(whole.slice(0, length)), `${length}`).toBeDefined();
    }
    expect(await refusal(whole)).toBeUndefined();
    // The bytes behind the entries may be cut off anywhere.
    const tail = oldTail();
    for (let length = 0; length <= tail.length; length++) {
      expect(await refusal(oldMatrixFile(small, tail.slice(0, length))), `${length}`).toBeUndefined();
    }
    const gguf = matrixFile(small);
    // Its padding at the end may be missing.
    for (let length = 4; length < gguf.length - 28; length += 41)
      expect(await refusal(gguf.slice(0, length))).toBeDefined();
    expect(await refusal(gguf)).toBeUndefined();
  });

  it('is refused with one bad field', async () => {
    const [first] = await activations(model);
    const good = { ...first!, sums: first!.sums.slice(0, 256), counts: [3] };
    const tensors = matrixTensors([good]);
    const withTensors = (changed: typeof tensors) => ggufFile({ pairs: matrixPairs, tensors: changed });
    const renamed = (from: string, to: string) => tensors.map((one) => ({ ...one, name: one.name.replace(from, to) }));
    const bad = (i: number, value: number) => {
      const sums = good.sums.slice();
      sums[i] = value;
      return { ...good, sums };
    };
    const int = (at: number, value: number) => {
      const bytes = oldMatrixFile([good]);
      new DataView(bytes.buffer).setInt32(at, value, true);
      return bytes;
    };
    const name = 4 + 4 + good.name.length;
    const cases: readonly (readonly [expected: RegExp, file: Uint8Array])[] = [
      [/imatrix.datasets is missing/, ggufFile({ pairs: matrixPairs.slice(0, 1), tensors })],
      [/imatrix.chunk_count is missing/, ggufFile({ pairs: matrixPairs.slice(0, 2), tensors })],
      [/imatrix.chunk_size is missing/, ggufFile({ pairs: matrixPairs.slice(0, 3), tensors })],
      [/not an importance matrix: imatrix.datasets/, model],
      [/has no sums/, withTensors([])],
      [/no counts for it/, withTensors(tensors.slice(0, 1))],
      [/no in_sum2 for it/, withTensors(tensors.slice(1))],
      [/no in_sum2 for it/, withTensors(renamed('in_sum2', 'in_sum'))],
      [/F16 instead of F32/, withTensors(tensors.map((one) => ({ name: one.name, dtype: 'F16', ne: one.ne })))],
      [
        /256 sums are not those of 3 matrices/,
        withTensors([tensors[0]!, { name: tensors[1]!.name, dtype: 'F32', ne: [1, 3] }]),
      ],
      [/sum 7 is NaN/, matrixFile([bad(7, Number.NaN)])],
      [/sum 255 is Infinity/, matrixFile([bad(255, Infinity)])],
      [/sum 0 is -1/, matrixFile([bad(0, -1)])],
      [/count 0 is NaN/, matrixFile([{ ...good, counts: [Number.NaN] }])],
      [/count 0 is -2/, matrixFile([{ ...good, counts: [-2] }])],
      [/value 7 is NaN/, oldMatrixFile([bad(7, Number.NaN)])],
      [/claims 0 entries/, int(0, 0)],
      [/claims -1 entries/, int(0, -1)],
      [/claims 2000000000 entries/, int(0, 2_000_000_000)],
      [/ends inside of entry 1|name of/, int(0, 2)],
      [/a name of 0 bytes/, int(4, 0)],
      [/a name of -5 bytes/, int(4, -5)],
      [/a name of 2000000000 bytes/, int(4, 2_000_000_000)],
      [/claims 0 values/, int(name + 4, 0)],
      [/claims -3 values/, int(name + 4, -3)],
      [/claims 1000000000 values/, int(name + 4, 1_000_000_000)],
    ];
    for (const [expected, file] of cases) {
      expect(await refusal(file), String(expected)).toMatch(expected);
    }
  });

  it('is refused by name if it is not a file', async () => {
    const wrong = (options: object) => planModel(model, { to: 'Q4_0', ...options } as QuantizeModelOptions);
    const file = matrixFile(await activations(model));
    for (const [options, option] of [
      [{ importance: 7 }, 'importance'],
      [{ importance: {} }, 'importance'],
      [{ includeWeights: ['a'] }, 'includeWeights'],
      [{ unseenColumns: 'zero' }, 'unseenColumns'],
      [{ importance: file, unseenColumns: 'one' }, 'unseenColumns'],
      [{ importance: file, includeWeights: 'a' }, 'includeWeights'],
      [{ importance: file, excludeWeights: [''] }, 'excludeWeights'],
      [{ importance: file, includeWeights: ['a'], excludeWeights: ['b'] }, 'excludeWeights'],
      [{ to: 'copy', importance: file }, 'importance'],
    ] as const) {
      await expect(wrong(options), option).rejects.toThrow(expect.objectContaining({ option }));
    }
    await expect(wrong({ importance: '/nowhere/at/all' })).rejects.toThrow(expect.objectContaining({ code: 'IO' }));
  });
});
