// Importance from our own forward pass, against what llama.cpp computes.
import { existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { generator } from '../../../scripts/site/storyteller/stories.mjs';
import { calibrateModel, type DataProgress, inspectModel, quantizeModel, readFloats } from '../../../web/src/model.js';
import { importanceOf, madeUp, storyteller } from '../support/divergence.js';
import { madeUpLlama } from '../support/made-up-llama.js';
import { needNative } from '../support/native.js';
import { ownLogits } from '../support/own-logits.js';
import { drawn } from '../support/tokens.js';

needNative();

/** The mean squares of a statistics file. */
async function means(file: Uint8Array<ArrayBuffer>): Promise<Map<string, Float64Array>> {
  const { tensors } = await inspectModel(file);
  const found = new Map<string, Float64Array>();
  for (const { name } of tensors) {
    if (!name.endsWith('.in_sum2')) continue;
    const sums = (await readFloats(file, name)).data;
    const [count] = (await readFloats(file, name.replace('in_sum2', 'counts'))).data;
    found.set(
      name.slice(0, -'.in_sum2'.length),
      Float64Array.from(sums, (sum) => sum / (count as number)),
    );
  }
  return found;
}

describe('calibrateModel', () => {
  const models = [
    ['made up', async () => madeUp()],
    ['the storyteller', () => storyteller('F32')],
  ] as const;
  it.each(models)('finds the importance that llama.cpp finds, of %s', async (_, make) => {
    const file = await make();
    const ids = Uint32Array.of(1, ...drawn(70));
    const statistics = await calibrateModel(file, ids, { chunkSize: ids.length });
    expect(statistics).toMatchObject({ tokens: ids.length, chunks: 1 });
    const ours = await means(await statistics.bytes());
    const theirs = await means(await importanceOf(file, () => [...ids]));
    for (const [name, expected] of theirs) {
      const found = ours.get(name) as Float64Array;
      expect(found.length, name).toBe(expected.length);
      const most = expected.reduce((a, b) => Math.max(a, b));
      for (const [i, value] of expected.entries()) {
        // llama.cpp keeps keys and values in float16: values move by 2^-11 of themselves and shares by as much, and squares by twice that.
        expect(Math.abs((found[i] as number) - value), `${name} ${i}`).toBeLessThan(2 ** -9 * value + 1e-4 * most);
      }
    }
    // The head is among them. It may be the table.
    expect([...ours.keys()].sort()).toEqual([...theirs.keys()].sort());
    // It serves as importance.
    const made = await quantizeModel(file, {
      to: 'Q3_K_M',
      importance: new Blob([await statistics.bytes()]),
      workers: 0,
    });
    const without = made.report.notes.flatMap((note) =>
      note.kind === 'noImportance' ? (note.tensors as string[]) : [],
    );
    expect(without).toEqual(theirs.has('output.weight') ? ['token_embd.weight'] : []);
  });

  it('notes data of few different tokens', async () => {
    const file = madeUp();
    const few = Uint32Array.from({ length: 400 }, (_, i) => 3 + (i % 9));
    const notesOn = async (ids: Uint32Array<ArrayBuffer>) => (await calibrateModel(file, ids, { chunkSize: 40 })).notes;
    expect(await notesOn(few)).toMatchObject([
      { kind: 'fewTokens', seen: 10, tokens: 400, vocabulary: expect.any(Number) },
    ]);
    expect(await notesOn(drawn(400))).toEqual([]);
  });

  it('adds random tokens to the data of moments', async () => {
    const file = madeUpLlama({ layers: 1, width: 64 });
    const ids = drawn(70);
    const options = { chunkSize: 10, moments: true, workers: 0 };
    const random = generator(1);
    const others = Uint32Array.from({ length: 70 }, () => Math.floor(random() * 512));
    const momentsOf = async (data: Uint32Array<ArrayBuffer>, more: object) => {
      const made = await calibrateModel(file, data, { ...options, ...more });
      const bytes = (await made.moments?.bytes()) as Uint8Array<ArrayBuffer>;
      const { tensors, metadata } = await inspectModel(bytes);
      const values = new Map<string, Float32Array>();
      for (const { name } of tensors) values.set(name, (await readFloats(bytes, name)).data);
      return { made, metadata, values };
    };
    const parts = (tokens: Uint32Array, isTaken: (chunk: number) => boolean) =>
      tokens.filter((_, i) => isTaken(Math.floor(i / 10)));

    // Chunks 1 and 5 of each part are held back.
    const both = await momentsOf(ids, { heldBack: 0.25, mix: 0.5 });
    expect(both.made).toMatchObject({ tokens: 140, mixedTokens: 70, chunks: 14, heldBackChunks: 4, notes: [] });
    expect(both.metadata).toMatchObject({ tokens: '100', heldBackTokens: '40', mixedTokens: '70' });
    for (const [end, isHeld] of [
      ['', false],
      ['.heldBack', true],
    ] as const) {
      const all = [ids, others].flatMap((tokens) => [...parts(tokens, (i) => [1, 5].includes(i) === isHeld)]);
      const alone = await momentsOf(Uint32Array.from(all), { heldBack: 0, mix: 0 });
      expect(alone.made).toMatchObject({ mixedTokens: 0 });
      expect(Object.keys(alone.metadata)).not.toContain('mixedTokens');
      for (const [name, values] of alone.values) {
        if (!/\.(diagonal|divergence)$/.test(name)) expect(both.values.get(name + end), name).toEqual(values);
      }
    }
    const mixedTokens = async (more: object) =>
      (await calibrateModel(file, ids, { chunkSize: 20, ...more })).mixedTokens;
    expect(await mixedTokens({ moments: true })).toBe(20);
    // The importance of a text is that of llama-imatrix.
    expect(await mixedTokens({})).toBe(0);
    await expect(mixedTokens({ mix: 0.25 })).rejects.toMatchObject({ option: 'mix' });
    for (const mix of [-0.1, 0.51, Number.NaN, '0.1']) {
      await expect(mixedTokens({ moments: true, mix })).rejects.toMatchObject({ option: 'mix' });
    }
  });

  it('writes a file whole or not at all', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'scalepoint-calibrate-'));
    try {
      const output = join(folder, 'imatrix.gguf');
      const file = madeUp();
      const options = { output, chunkSize: 16 };
      const written = await calibrateModel(file, drawn(40), options);
      for (const read of [() => written.bytes(), () => written.blob()]) await expect(read()).rejects.toThrow(TypeError);
      const first = await readFile(output);
      await expect(calibrateModel(file, drawn(40), options)).rejects.toMatchObject({ code: 'EXISTS' });
      await calibrateModel(file, drawn(20), { ...options, overwrite: true });
      expect((await readFile(output)).equals(first)).toBe(false);

      // Stopped in the middle.
      const stopped = join(folder, 'stopped.gguf');
      const controller = new AbortController();
      const reason = new Error('enough');
      const onProgress = ({ pass }: DataProgress) => {
        if (pass === 2) controller.abort(reason);
      };
      await expect(
        calibrateModel(file, drawn(64), { output: stopped, chunkSize: 16, onProgress, signal: controller.signal }),
      ).rejects.toBe(reason);
      expect(existsSync(stopped)).toBe(false);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('reports the tokens that have passed each layer', async () => {
    const seen: DataProgress[] = [];
    const onProgress = (progress: DataProgress) => seen.push(progress);
    const file = madeUp();
    // Slices hold 512 tokens.
    const { tokens } = await calibrateModel(file, drawn(1040), { chunkSize: 16, onProgress });
    const passes = seen.at(-1)?.passes as number;
    expect(seen).toEqual(
      Array.from({ length: passes }, (_, layer) =>
        [512, 1024, tokens].map((done) => ({
          phase: 'calibrate',
          unit: 'tokens',
          pass: layer + 1,
          passes,
          done,
          total: tokens,
        })),
      ).flat(),
    );
    const rejecting = calibrateModel(file, drawn(64), { onProgress: async () => Promise.reject(new Error('enough')) });
    await expect(rejecting).rejects.toThrow('enough');
  });

  it('refuses data that do not fit', async () => {
    const file = madeUp();
    for (const [data, option] of [
      [[], 'data'],
      [[3], 'data'],
      [[1, 2, 3, 512], 'data'],
      [[1, 2, 3, -1], 'data'],
      [[1, 2, 3, 1.5], 'data'],
      [
        [
          [1, 2, 3, 4],
          [5, 6, 7, 600],
        ],
        'data[1]',
      ],
      [{}, 'data'],
      [[1, 2, 3, 4, null], 'data[0]'],
    ] as const) {
      await expect(calibrateModel(file, data as never), JSON.stringify(data)).rejects.toMatchObject({ option });
    }
    await expect(calibrateModel(file, drawn(9), { chunkSize: 10 })).rejects.toMatchObject({ option: 'data' });
    for (const bad of [{ chunkSize: 3 }, { chunkSize: 1.5 }, { maxTokens: 0 }, { tokenizer: {} }]) {
      await expect(calibrateModel(file, drawn(9), bad as never)).rejects.toMatchObject({
        option: Object.keys(bad)[0],
      });
    }
    await expect(calibrateModel(file, 'A text.')).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT' });
  });

  it('leaves nothing behind where data or numbers are wrong', async () => {
    const file = madeUpLlama({ layers: 1, width: 64 });
    const folder = mkdtempSync(join(tmpdir(), 'scalepoint-calibrate-'));
    try {
      const output = join(folder, 'imatrix.gguf');
      const options = { output, moments: true, workers: 0 };
      const tokenizer = (...ids: number[]) => ({ ...options, tokenizer: { encode: () => ids } });
      for (const [data, more] of [
        ['', tokenizer()],
        ['x', tokenizer(7)],
        [['', ''], tokenizer()],
        [[], options],
        [[7], options],
      ] as const) {
        await expect(calibrateModel(file, data, more)).rejects.toMatchObject({ option: 'data' });
      }
      // Tokenizers of other models.
      for (const wrong of [512, -1, 1.5, Number.NaN, undefined as never, '3' as never]) {
        const call = calibrateModel(file, 'A text.', tokenizer(3, 4, 5, wrong));
        await expect(call).rejects.toMatchObject({ code: 'BAD_FILE', message: expect.stringContaining('tokenizer') });
      }
      const failing = { ...options, tokenizer: { encode: () => Promise.reject(new Error('no text')) } };
      await expect(calibrateModel(file, 'A text.', failing)).rejects.toThrow('no text');
      const spoiled = madeUpLlama({ layers: 2, width: 64, spoiled: 'blk.1.attn_v.weight' });
      await expect(calibrateModel(spoiled, drawn(64), options)).rejects.toMatchObject({
        code: 'NON_FINITE',
        tensor: 'blk.1.attn_output.weight',
      });
      expect(readdirSync(folder)).toEqual([]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('the divergence of weights', () => {
  it('is that of models in which one weight has three bits, for each unit of its relative error', async () => {
    const file = madeUpLlama({ layers: 1 });
    // At least 32 tokens are measured.
    const count = 32;
    const ids = Uint32Array.of(1, ...drawn(count - 1));
    const made = await calibrateModel(file, ids, { moments: true, workers: 0 });
    const moments = (await made.moments?.bytes()) as Uint8Array<ArrayBuffer>;
    const entries = (await inspectModel(moments)).tensors.flatMap(
      ({ name }) => /^(.*)\.divergence$/.exec(name)?.[1] ?? [],
    );
    const weights = (await inspectModel(file)).tensors.filter(({ name }) => !/norm/.test(name)).map(({ name }) => name);
    expect(entries.toSorted()).toEqual(weights.toSorted());

    const rows = async (of: Uint8Array<ArrayBuffer>, name: string) => {
      const { data, shape } = await readFloats(of, name);
      const width = shape.at(-1) as number;
      return Array.from({ length: data.length / width }, (_, i) =>
        Float64Array.from(data.subarray(i * width, (i + 1) * width)),
      );
    };
    const sumOf = (one: Iterable<number>) => [...one].reduce((a, b) => a + b, 0);
    const logitsOf = async (of: Uint8Array<ArrayBuffer>) => ownLogits(of, [...ids]);
    const chances = (logits: Float32Array) => {
      const most = logits.reduce((a, b) => Math.max(a, b));
      const all = Float64Array.from(logits, (one) => Math.exp(one - most));
      const sum = sumOf(all);
      return all.map((one) => one / sum);
    };
    const relative = (pairs: readonly (readonly [ArrayLike<number>, ArrayLike<number>])[]) => {
      let [error, squares] = [0, 0];
      for (const [x, y] of pairs)
        for (let i = 0; i < x.length; i++) {
          error += ((x[i] as number) - (y[i] as number)) ** 2;
          squares += (x[i] as number) ** 2;
        }
      return error / squares;
    };
    const original = await logitsOf(file);
    const table = await rows(file, 'token_embd.weight');
    for (const name of ['token_embd.weight', 'blk.0.attn_v.weight', 'output.weight']) {
      const rules = [{ match: `^${name}$`, to: 'Q3_K' }];
      const rounded = await (await quantizeModel(file, { to: 'F32', rules, workers: 0 })).bytes();
      const found = await logitsOf(rounded);
      const divergence = sumOf(
        original.map((logits, token) => {
          const [p, q] = [chances(logits), chances(found[token] as Float32Array)];
          return sumOf(p.map((one, i) => one * Math.log(one / (q[i] as number))));
        }),
      );
      // The outputs: rows of the table, values of normalized rows, or logits.
      const [before, after] = [await rows(file, name), await rows(rounded, name)];
      const outputs = (w: readonly Float64Array[], id: number) => {
        const x = table[id] as Float64Array;
        const norm = Math.sqrt(sumOf(x.map((one) => one * one)) / x.length + 1e-5);
        return w.map((row) => sumOf(row.map((one, i) => (one * (x[i] as number)) / norm)));
      };
      const error = relative(
        [...ids].map((id, token) => {
          if (name === 'token_embd.weight') return [before[id] as Float64Array, after[id] as Float64Array];
          if (name === 'output.weight') return [original[token] as Float32Array, found[token] as Float32Array];
          return [outputs(before, id), outputs(after, id)];
        }),
      );
      const [value] = (await readFloats(moments, `${name}.divergence`)).data as unknown as [number];
      // Products of 256 float32 numbers err by some 2^-20 of their terms, and the errors of three bits by 2^-4 of theirs.
      expect(Math.abs(value / (divergence / count / error) - 1), name).toBeLessThan(1e-4);
    }
  });
});
