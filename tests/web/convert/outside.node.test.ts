// A made-up format and a made-up codec, registered here, go through everything that models go through. If they needed more than the two
// registries, the interfaces would be incomplete.
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compareModels, inspectModel, type PlanOptions, planModel, quantizeModel, readTensor } from 'scalepoint/model';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { explainFailure, run } from '../../../web/src/cli/main.js';
import { noteOf } from '../../../web/src/core/note.js';
import { numberOption } from '../../../web/src/core/schema.js';
import { errorsOf } from '../../../web/src/formats/codecs/calls.js';
import type { Codec, Form } from '../../../web/src/formats/codecs/codec.js';
import { registerCodec } from '../../../web/src/formats/codecs/registry.js';
import type { ByteSource } from '../../../web/src/formats/files/bytes.js';
import type {
  Format,
  LogicalTensor,
  OpenModel,
  PlannedTensor,
  Segment,
  SourceTensor,
} from '../../../web/src/formats/format.js';
import { optionTable, ruleFor } from '../../../web/src/formats/options.js';
import { reasons } from '../../../web/src/formats/reason.js';
import { registerFormat } from '../../../web/src/formats/registry.js';
import { keptTensor, plainTensor } from '../../../web/src/formats/tensors.js';
import { expectBytes } from '../support/models.js';

// -------------------------------------------------------------------------------------------------------------------- the codec

interface ShareForm extends Form {
  readonly codec: 'share';
  readonly levels: number;
}

/** Each element as a share of the largest magnitude in its row, in whole levels of a byte: 128 + levels * x / peak, rounded. */
const share: Codec<ShareForm> = {
  id: 'share',
  label: ({ levels }) => `SHARE${levels}`,
  parts([rows = 1, ...columns]) {
    const n = rows * columns.reduce((a, b) => a * b, 1);
    return [
      { role: 'data', suffix: '', dtype: 'SHARE', shape: [rows, ...columns], bytes: n },
      { role: 'peak', suffix: '.peak', dtype: 'F32', shape: [rows], bytes: 4 * rows },
    ];
  },
  grid: ([rows]) => ({ rows, rowUnit: 1, columnUnit: 1 }),
  runs(_shape, _form, role, { row, rows, column, columns, width }) {
    if (role === 'peak') return { offset: 4 * row, bytes: 4 * rows, count: 1, stride: 4 * rows };
    return { offset: row * width + column, bytes: columns, count: rows, stride: width };
  },
  *cuts([rows = 1, ...inner], _form, roles) {
    const width = inner.reduce((a, b) => a * b, 1);
    // Two rows at a time, so that there is more than one tile.
    for (let row = 0; row < rows; row += 2) {
      const rectangle = { row, rows: Math.min(2, rows - row), column: 0, columns: width, width };
      yield { kind: 'tile', rectangle, roles };
    }
  },
  encode(core, { rows, columns, type, source, measures }, form, arena) {
    const { module } = core;
    const data = arena.take(rows * columns);
    const peak = arena.take(4 * rows);
    const stored = { rows, columns, parts: { data, peak } };
    expect(type).toBe('F32');
    const x = module.HEAPF32.subarray(source / 4, source / 4 + rows * columns);
    for (let r = 0; r < rows; r++) {
      const row = x.subarray(r * columns, (r + 1) * columns);
      const most = Math.max(...row.map(Math.abs));
      const bad = row.findIndex((v) => !Number.isFinite(v));
      if (bad >= 0) {
        return { parts: {}, problem: { kind: 'non-finite', index: r * columns + bad, value: row[bad] as number } };
      }
      module.HEAPF32[peak / 4 + r] = most;
      row.forEach((v, i) => {
        module.HEAPU8[data + r * columns + i] = 128 + Math.round((form.levels * v) / most);
      });
    }
    const parts = { data: { address: data, bytes: rows * columns }, peak: { address: peak, bytes: 4 * rows } };
    const restored = share.decode?.(core, stored, form, arena) as number;
    return measures ? { parts, sums: errorsOf(core, source, restored, rows * columns) } : { parts };
  },
  decode({ module }, { rows, columns, parts }, { levels }, arena) {
    const x = arena.take(4 * rows * columns);
    const [data, peak] = [parts.data as number, parts.peak as number];
    for (let i = 0; i < rows * columns; i++) {
      const most = module.HEAPF32[peak / 4 + Math.floor(i / columns)] as number;
      module.HEAPF32[x / 4 + i] = (((module.HEAPU8[data + i] as number) - 128) * most) / levels;
    }
    return x;
  },
};

// ------------------------------------------------------------------------------------------------------------------- the format

interface Entry {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  readonly byteOffset: number;
}

/** 'BOX!', the tensors with a 'T' before each, JSON that lists them, and its length in 32 bits. */
const boxed = (entries: readonly Entry[]): Uint8Array<ArrayBuffer> => {
  const json = Buffer.from(JSON.stringify(entries));
  const foot = new Uint8Array(json.length + 4);
  foot.set(json);
  new DataView(foot.buffer).setUint32(json.length, json.length, true);
  return foot;
};
const bytesOf = (text: string) => new Uint8Array(Buffer.from(text));

async function readEntries(source: ByteSource): Promise<Entry[]> {
  const end = await source.read(source.size - 4, source.size);
  const length = new DataView(end.buffer, end.byteOffset).getUint32(0, true);
  return JSON.parse(Buffer.from(await source.read(source.size - 4 - length, source.size - 4)).toString());
}

interface BoxOptions {
  readonly levels?: number | undefined;
}

interface BoxModel extends OpenModel {
  readonly whole: readonly LogicalTensor[];
}

/** Shares together with their peaks. */
function wholeTensors(tensors: readonly SourceTensor[]): LogicalTensor[] {
  const peakOf = (name: string) => tensors.find((tensor) => tensor.name === `${name}.peak`);
  return tensors.flatMap((tensor) => {
    const peak = peakOf(tensor.name);
    if (tensor.name.endsWith('.peak')) return [];
    if (peak === undefined) return plainTensor(tensor);
    const form: ShareForm = { codec: 'share', levels: 100 };
    const parts = [
      { role: 'data', tensor },
      { role: 'peak', tensor: peak },
    ];
    return { name: tensor.name, shape: tensor.shape, type: 'SHARE', form, parts };
  });
}

const levels = numberOption({ whole: true }, { name: 'levels', value: 'N', about: 'steps between 0 and the peak' });

const box: Format<'box', 'share', 'box', BoxOptions, object, BoxModel> = {
  name: 'box',
  label: 'BOX',
  files: 'BOX',
  extensions: ['.box'],
  result: 'box',
  about: 'BOX files become shares.',
  examples: ['numbers.box --to share --levels 9'],
  targets: [{ name: 'share', about: 'a byte for each', options: ['levels'] }],
  aliases: {},
  ruleTargets: ['share'],
  options: optionTable<BoxOptions>('BOX', { levels }, () => {}),
  unit: 'element',
  facts: ({ tensors }) => [`${tensors.length} in the box`],
  magic: [...bytesOf('BOX!')],

  async open([file]) {
    const { source } = file as NonNullable<typeof file>;
    const tensors = (await readEntries(source)).map((entry) => ({ ...entry, file: 0 }));
    return { bytes: source.size, files: [source], tensors, metadata: {}, whole: wholeTensors(tensors) };
  },
  tensors: async ({ whole }) => whole,
  plan({ whole }, { levels = 100, rules = [] }, { partsOf }) {
    const form: ShareForm = { codec: 'share', levels };
    const planned = whole.map((source): PlannedTensor => {
      const [first] = source.parts;
      if (first !== undefined && source.name === 'sealed')
        return keptTensor(first.tensor, { kind: 'sealed', by: 'wax' });
      if (first !== undefined && ruleFor(rules, source.name)?.keep) return keptTensor(first.tensor, reasons.rule);
      return { source, form, parts: partsOf(source.shape, form) };
    });
    let at = 4;
    const segments: Segment[] = [{ at: 0, bytes: bytesOf('BOX!') }];
    const entries: Entry[] = [];
    planned.forEach(({ source, parts }, tensor) => {
      for (const { role, suffix, ...part } of parts) {
        segments.push({ at, bytes: bytesOf('T') }, { at: at + 1, tensor, role });
        const { dtype, shape, bytes } = part;
        entries.push({ name: source.name + suffix, dtype, shape, bytes, byteOffset: at + 1 });
        // Nothing says what is in between: zeros.
        at += 1 + bytes + 3;
      }
    });
    const foot = boxed(entries);
    segments.push({ at, bytes: foot });
    const file = { suffix: '', size: at + foot.length, segments };
    return {
      format: 'box',
      files: [file],
      tensors: planned,
      notes: [noteOf('boxed', {}, 'it is in a box')],
      sidecars: [],
    };
  },
  reasonText: ({ kind, by }) => (kind === 'sealed' ? `sealed with ${by}` : undefined),
};

/** A file of float32 tensors. */
function boxFile(tensors: Readonly<Record<string, { shape: readonly number[]; data: Float32Array }>>) {
  const pieces: Uint8Array[] = [bytesOf('BOX!')];
  const entries: Entry[] = [];
  let at = 4;
  for (const [name, { shape, data }] of Object.entries(tensors)) {
    entries.push({ name, dtype: 'F32', shape, bytes: data.byteLength, byteOffset: at });
    pieces.push(new Uint8Array(data.buffer));
    at += data.byteLength;
  }
  return new Uint8Array(Buffer.concat([...pieces, boxed(entries)]));
}

// -------------------------------------------------------------------------------------------------------------------- the tests

const a = Float32Array.from([1, -2, 0.5, 4, 3, -3, 0, 0.03, -0.07, 0.01, 0.1, 0.05]);
const b = Float32Array.from([10, -5, 2.5]);
const file = boxFile({ a: { shape: [4, 3], data: a }, b: { shape: [1, 3], data: b } });
const options = { to: 'share' } as unknown as PlanOptions;

let folder = '';
let forget: (() => void)[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-outside-'));
  await writeFile(join(folder, 'numbers.box'), file);
  forget = [registerCodec(share), registerFormat(box)];
});
afterAll(async () => {
  for (const f of forget) f();
  await rm(folder, { recursive: true, force: true });
});
afterEach(() => vi.restoreAllMocks());

/** Runs the command line in this process. */
async function command(...args: string[]) {
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    vi.spyOn(process[name], 'write').mockImplementation((text) => {
      texts[name] += String(text);
      return true;
    });
  }
  const code = await run(args).catch((error) => explainFailure(error, args));
  vi.restoreAllMocks();
  return { code, ...texts };
}

describe('a format and a codec from outside', () => {
  it('are inspected and planned', async () => {
    expect(await inspectModel(file)).toMatchObject({
      format: 'box',
      bytes: file.length,
      tensors: [{ name: 'a' }, { name: 'b' }],
    });
    const plan = await planModel(file, options);
    expect(plan).toMatchObject({
      format: 'box',
      to: 'share',
      notes: [{ kind: 'boxed', text: 'it is in a box' }],
      totals: { quantized: 2, kept: 0 },
    });
    expect(plan.tensors[0]).toEqual({
      name: 'a',
      shape: [4, 3],
      from: 'F32',
      to: 'SHARE100',
      bytesBefore: 48,
      bytesAfter: 12 + 16,
    });
  });

  it('are quantized in memory, to a path and into a stream', async () => {
    const rows = [a.subarray(0, 3), a.subarray(3, 6), a.subarray(6, 9), a.subarray(9, 12)];
    const expected = rows.flatMap((row) => {
      const most = Math.max(...row.map(Math.abs));
      return [...row].map((v) => 128 + Math.round((100 * v) / most));
    });
    const result = await quantizeModel(file, { ...options, workers: 0 });
    const bytes = await result.bytes();
    expect(result.report.totals.bytesAfter).toBe(bytes.length);
    expect([...((await readTensor(bytes, 'a')).data as Uint8Array)]).toEqual(expected);
    expect([...((await readTensor(bytes, 'b.peak')).data as Float32Array)]).toEqual([10]);
    const output = join(folder, 'out.box');
    await quantizeModel(join(folder, 'numbers.box'), { ...options, workers: 0, output });
    expectBytes(await readFile(output), bytes);
    const pieces: Uint8Array[] = [];
    const stream = new WritableStream<Uint8Array<ArrayBuffer>>({ write: (piece) => void pieces.push(piece) });
    await quantizeModel(file, { ...options, workers: 0, output: stream });
    expectBytes(Buffer.concat(pieces), bytes);
    await rm(output);
  });

  it('keep what a rule keeps, and name the element that cannot be stored', async () => {
    const rules = [{ match: /b/, keep: true as const }];
    const { report, bytes } = await quantizeModel(file, { ...options, rules, workers: 0 });
    expect(report.tensors[1]).toMatchObject({
      name: 'b',
      to: 'F32',
      kept: { kind: 'rule', text: 'by a rule' },
      nonFinite: 0,
    });
    expect([...((await readTensor(await bytes(), 'b')).data as Float32Array)]).toEqual([...b]);
    const sealed = await planModel(boxFile({ sealed: { shape: [1, 3], data: b } }), options);
    expect(sealed.tensors[0]?.kept).toEqual({ kind: 'sealed', by: 'wax', text: 'sealed with wax' });
    const bad = boxFile({ c: { shape: [3, 2], data: Float32Array.of(1, 2, 3, 4, Number.NaN, 6) } });
    await expect(quantizeModel(bad, { ...options, workers: 0 })).rejects.toMatchObject({
      code: 'NON_FINITE',
      message: 'tensor "c" holds NaN at [2, 0]; a rule can keep it',
      byteOffset: 4 + 16,
    });
  });

  it('are compared with what they were made from', async () => {
    const made = await (await quantizeModel(file, { ...options, workers: 0 })).bytes();
    const { tensors, skipped } = await compareModels(file, made, { workers: 0 });
    expect(skipped).toEqual([]);
    expect(tensors).toMatchObject([
      { name: 'a', a: 'F32', b: 'SHARE100' },
      { name: 'b', a: 'F32', b: 'SHARE100' },
    ]);
    // b lies on the levels: 10, -5 and 2.5 are 100, -50 and 25 hundredths of 10. The others are half a level off at most.
    expect(tensors[1]?.error.maxAbsoluteError).toBe(0);
    expect(tensors[0]?.error.maxAbsoluteError).toBeLessThanOrEqual(4 / 200);
    expect(tensors[0]?.error.maxAbsoluteError).toBeGreaterThan(0);
  });

  it('are quantized again, from what their codes stand for', async () => {
    const made = await (await quantizeModel(file, { ...options, workers: 0 })).bytes();
    const coarse = { ...options, levels: 4 } as PlanOptions;
    const { report, bytes } = await quantizeModel(made, { ...coarse, workers: 0 });
    expect(report.tensors[1]).toMatchObject({
      name: 'b',
      from: 'SHARE',
      to: 'SHARE4',
      bytesBefore: 3 + 4,
      bytesAfter: 3 + 4,
    });
    // 10, -5 and 2.5 are 4, -2 and 1 quarters of 10.
    expect(report.tensors[1]?.error?.maxAbsoluteError).toBe(0);
    expect([...((await readTensor(await bytes(), 'b')).data as Uint8Array)]).toEqual([132, 126, 129]);
  });

  it('are options, errors and help of the command line', async () => {
    const help = await command('quantize', '--help-all');
    expect(help.stdout).toContain('BOX files become shares.');
    expect(help.stdout).toMatch(/\n {6}BOX +share\n/);
    expect(help.stdout).toContain('\nBOX\n  --levels N            steps between 0 and the peak\n');
    expect(help.stdout).toContain('\n  scalepoint quantize numbers.box --to share --levels 9\n');
    for (const line of help.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    const path = join(folder, 'numbers.box');
    expect((await command('inspect', path)).stdout).toMatch(/box, 2 tensors, 15 elements, .*\n2 in the box\n/);
    expect((await command('plan', path, '--to', 'SHARE')).stdout).toContain('would write ');
    const done = await command('quantize', path, '--to', 'share', '--levels', '9', '--workers', '0');
    expect(done).toMatchObject({ code: 0, stderr: 'scalepoint: it is in a box\n' });
    expect(await readdir(folder)).toContain('numbers.share.box');
    const wrong = await command('plan', path, '--to', 'share', '--levels', 'x');
    expect(wrong).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--levels: expected a whole number, got "x"/),
    });
    const foreign = await command('plan', path, '--to', 'share', '--pure');
    expect(foreign.stderr).toMatch(/--pure: only for GGUF files/);
    const other = await command('plan', path, '--to', 'int8');
    expect(other.stderr).toMatch(/--to: expected a target of BOX such as share, got "int8"/);
  });

  it('are named where the formats are listed', async () => {
    await expect(inspectModel(Uint8Array.of(1, 2, 3))).rejects.toThrow(
      /supported are safetensors, GGUF, ONNX, \.npy, PyTorch, MLC, BOX, the index\.json/,
    );
    await expect(planModel(file, { to: 'none' } as unknown as PlanOptions)).rejects.toThrow(
      /a target of BOX such as 'share', got "none"/,
    );
    await expect(planModel(file, { to: 'share', none: 1 } as unknown as PlanOptions)).rejects.toThrow(
      /zeroPoints, profile, also, levels, rules, lora, targetSize, targetBitsPerWeight, targetDivergence, output, workers, worker, core, onProgress, signal$/,
    );
  });
});
