// Runs that go on after an interruption: the same bytes as those of a single run, and errors for states of other runs.
import { mkdtempSync, readdirSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  calibrateModel,
  type DataProgress,
  evaluateModel,
  inspectModel,
  quantizeModel,
  ScalepointError,
} from '../../../web/src/model.js';
import { madeUpLlama } from '../support/made-up-llama.js';
import { drawn } from '../support/tokens.js';

const file = madeUpLlama({ layers: 4, width: 64 });
const ids = drawn(600, 7);
const chunkSize = 32;

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'scalepoint-resume-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** The places of all members in a value of JSON. */
const placesIn = (value: unknown): string[][] =>
  typeof value !== 'object' || value === null
    ? []
    : Object.entries(value).flatMap(([key, one]) => [[key], ...placesIn(one).map((rest) => [key, ...rest])]);

/** Options of a run that is stopped in a pass. */
function stoppedIn(last: number) {
  const controller = new AbortController();
  const onProgress = ({ pass, done, total }: DataProgress) => {
    if (pass === last && done < total) controller.abort(new Error('stopped'));
  };
  return { signal: controller.signal, onProgress };
}

describe('a calibration', () => {
  it.each([0, 2])('goes on behind the last finished layer, with %i workers', async (workers) => {
    const options = { chunkSize, moments: true, workers };
    const whole = join(folder, 'whole.gguf');
    await calibrateModel(file, ids, { ...options, output: whole });
    const output = join(folder, 'parts.gguf');
    for (const pass of [3, 4]) {
      const call = calibrateModel(file, ids, { ...options, output, resume: true, ...stoppedIn(pass) });
      await expect(call).rejects.toThrow('stopped');
      const files = readdirSync(folder).filter((name) => !name.startsWith('whole'));
      expect(files.sort()).toEqual(['.parts.gguf.resume', '.parts.gguf.resume.moments']);
    }
    const other = { ...options, heldBack: 0.25, output, resume: true };
    await expect(calibrateModel(file, ids, other)).rejects.toMatchObject({ code: 'CHANGED' });
    const passes = new Set<number>();
    const onProgress = ({ pass }: DataProgress) => passes.add(pass);
    await calibrateModel(file, ids, { ...options, output, resume: true, onProgress });
    // The divergences are measured behind the last layer, anew.
    expect([...passes]).toEqual([4, 5, 6, 7, 8, 9]);
    for (const end of ['', '.moments.safetensors']) {
      expect((await readFile(output + end)).equals(await readFile(whole + end)), end).toBe(true);
    }
    const { metadata } = await inspectModel(`${output}.moments.safetensors`);
    // Chunks 1, 9 and 17 of 18, chunk 1 of 6 random ones, and the rest.
    const heldBackTokens = String(4 * chunkSize + (600 % chunkSize));
    expect(metadata).toMatchObject({ heldBackTokens, mixedTokens: String(6 * chunkSize) });
    expect(readdirSync(folder).length).toBe(4);
  });

  it('refuses the state of another run', async () => {
    const output = join(folder, 'imatrix.gguf');
    const stop = () =>
      calibrateModel(file, ids, { chunkSize, workers: 0, output, resume: true, overwrite: true, ...stoppedIn(2) });
    await expect(stop()).rejects.toThrow('stopped');
    const options = { chunkSize, workers: 0, output, resume: true };
    const other = madeUpLlama({ layers: 4, width: 64, spoiled: 'blk.3.ffn_up.weight' });
    for (const [call, what] of [
      [() => calibrateModel(file, ids.slice(0, 590), options), 'the data'],
      [() => calibrateModel(file, ids, { ...options, chunkSize: 16 }), 'the options'],
      [() => calibrateModel(file, ids, { ...options, moments: true }), 'the options'],
      [() => calibrateModel(other, ids, options), 'the model'],
    ] as const) {
      await expect(call()).rejects.toMatchObject({ code: 'CHANGED', message: expect.stringContaining(what) });
    }
    // Begins anew where that is allowed.
    const passes = new Set<number>();
    const onProgress = ({ pass }: DataProgress) => passes.add(pass);
    await calibrateModel(file, ids.slice(0, 590), { ...options, overwrite: true, onProgress });
    expect([...passes]).toEqual([1, 2, 3, 4]);
    expect(readdirSync(folder)).toEqual(['imatrix.gguf']);
  });

  it('refuses damaged states', async () => {
    const output = join(folder, 'imatrix.gguf');
    const options = { chunkSize, workers: 0, output, resume: true };
    await expect(calibrateModel(file, ids, { ...options, ...stoppedIn(2) })).rejects.toThrow('stopped');
    const path = join(folder, '.imatrix.gguf.resume');
    const state = await readFile(path);
    const changed = (from: string, to: string) => Buffer.from(state.toString('latin1').replace(from, to), 'latin1');
    for (const bytes of [
      new Uint8Array(0),
      state.subarray(0, 7),
      state.subarray(0, 100),
      state.subarray(0, state.length - 1),
      Buffer.concat([state, new Uint8Array(8)]),
      changed('scalepoint.pass', 'scalepoint.pest'),
      changed('{', '('),
      changed('"layer":0', '"layer":9'),
      changed('"columns":64', '"columns":65'),
    ]) {
      await writeFile(path, bytes);
      await expect(calibrateModel(file, ids, options)).rejects.toMatchObject({ code: 'BAD_FILE' });
      expect(readdirSync(folder)).toEqual(['.imatrix.gguf.resume']);
    }
    // Another program's file is not to be removed.
    await writeFile(path, '{"format":"something else"}');
    const other = await calibrateModel(file, ids, options).catch((error: Error) => error);
    expect(other).toMatchObject({ code: 'BAD_FILE', message: expect.not.stringContaining('remove') });
    await writeFile(path, state);
    expect((await calibrateModel(file, ids, options)).tokens).toBe(ids.length);
  });

  it('refuses states in which anything was changed', async () => {
    const output = join(folder, 'imatrix.gguf');
    const options = { chunkSize, workers: 0, output, resume: true };
    await calibrateModel(file, ids, { chunkSize, workers: 0, output });
    const expected = await readFile(output);
    await rm(output);
    await expect(calibrateModel(file, ids, { ...options, ...stoppedIn(2) })).rejects.toThrow('stopped');
    const path = join(folder, '.imatrix.gguf.resume');
    const state = await readFile(path);
    const length = Number(state.readBigUInt64LE(0));
    const header = JSON.parse(state.toString('utf8', 8, 8 + length)) as Record<string, unknown>;
    const rest = state.subarray(8 + length);
    const values = fc.oneof(fc.constantFrom(null, -1, 0, 1, 2 ** 31, 2 ** 53, '', [], {}, true), fc.string());
    const members = placesIn(header);
    const withMember = (place: readonly string[], value: unknown) => {
      const copy = JSON.parse(JSON.stringify(header)) as Record<string, unknown>;
      const inner = place.slice(0, -1).reduce<Record<string, unknown>>((at, key) => at[key] as never, copy);
      inner[place.at(-1) as string] = value;
      const text = Buffer.from(JSON.stringify(copy));
      const start = Buffer.alloc(8);
      start.writeBigUInt64LE(BigInt(text.length));
      return Buffer.concat([start, text, rest]);
    };
    const flipped = (at: number, by: number) => {
      const copy = Buffer.from(state);
      copy[at] = (copy[at] as number) ^ by;
      return copy;
    };
    const at = fc.nat(state.length - 1);
    const mutations = fc.oneof(
      fc.record({ place: fc.constantFrom(...members), value: values }),
      fc.record({ at, by: fc.integer({ min: 1, max: 255 }) }),
      fc.record({ end: at }),
    );
    await fc.assert(
      fc.asyncProperty(mutations, async (one) => {
        const changed =
          'place' in one
            ? withMember(one.place, one.value)
            : 'by' in one
              ? flipped(one.at, one.by)
              : state.subarray(0, one.end);
        await writeFile(path, changed);
        const outcome: unknown = await calibrateModel(file, ids, options).catch((error: unknown) => error);
        if (outcome instanceof Error) expect(outcome).toBeInstanceOf(ScalepointError);
        else {
          expect((await readFile(output)).equals(expected)).toBe(true);
          await rm(output);
        }
      }),
      { numRuns: 40, seed: 1 },
    );
  });

  it('takes a path as output', async () => {
    await expect(calibrateModel(file, ids, { resume: true })).rejects.toMatchObject({ option: 'output' });
    await expect(calibrateModel(file, ids, { resume: 1 as never })).rejects.toMatchObject({ option: 'resume' });
  });
});

describe('an evaluation', () => {
  it.each([0, 2])('goes on behind the last finished layer, with %i workers', async (workers) => {
    const quantized = await (await quantizeModel(file, { to: 'Q4_0', workers: 0 })).bytes();
    const options = { text: ids, reference: file, chunkSize, workers };
    const expected = await evaluateModel(quantized, options);
    const resume = join(folder, 'state');
    // In the model, in the reference, and while logits are judged.
    for (const pass of [3, 7, 9]) {
      await expect(evaluateModel(quantized, { ...options, resume, ...stoppedIn(pass) })).rejects.toThrow('stopped');
      expect(readdirSync(folder)).toEqual(['state']);
    }
    const passes = new Set<number>();
    const onProgress = ({ pass }: DataProgress) => passes.add(pass);
    expect(await evaluateModel(quantized, { ...options, resume, onProgress })).toEqual(expected);
    expect([...passes]).toEqual([9]);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('refuses the state of another run', async () => {
    const resume = join(folder, 'state');
    const options = { text: ids, chunkSize, workers: 0, resume };
    await expect(evaluateModel(file, { ...options, ...stoppedIn(2) })).rejects.toThrow('stopped');
    await expect(evaluateModel(file, { ...options, reference: file })).rejects.toMatchObject({ code: 'CHANGED' });
    await expect(evaluateModel(file, { ...options, chunkSize: 16 })).rejects.toMatchObject({ code: 'CHANGED' });
    await expect(evaluateModel(file, { ...options, resume: true as never })).rejects.toMatchObject({
      option: 'resume',
    });
  });
});
