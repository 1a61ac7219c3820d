// Advice of notes, carried out: an option that a note mentions converts the tensors of the note, in code and on the command line.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ModelPlan,
  type ModelTarget,
  type PlanModelOptions,
  planModel,
  quantizeModel,
  verifyModel,
} from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { floatTensor, model, tensor } from '../formats/onnx/encoder.js';
import { safetensors, weights } from '../support/models.js';
import { ggufFile, tinyLlama } from '../support/tiny-llama.js';
import { run } from './support.js';

type Dtype = Parameters<typeof weights>[0];
type Shapes = Readonly<Record<string, readonly [Dtype, readonly number[]]>>;

const fileOf = (shapes: Shapes) =>
  safetensors(Object.fromEntries(Object.entries(shapes).map(([name, [type, shape]]) => [name, weights(type, shape)])));

interface Case {
  readonly tensors: Shapes;
  readonly options: PlanModelOptions;
  /** The same options as flags, where the command line has them. */
  readonly flags?: readonly string[];
  /** Kinds of the notes with advice. */
  readonly kinds: readonly string[];
}

const group = (groupSize: number) => ({ kind: 'per-group', groupSize }) as const;

const cases: Readonly<Record<string, Case>> = {
  'rows of 96': {
    tensors: { 'a.weight': ['F32', [8, 96]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftRows'],
  },
  'rows of 100': {
    tensors: { 'a.weight': ['F32', [8, 100]], 'b.weight': ['F32', [8, 96]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftRows'],
  },
  'groups of 32 where 24 would do': {
    tensors: { 'a.weight': ['F32', [8, 72]] },
    options: { to: 'int8', granularity: group(32) },
    flags: ['--to', 'int8', '--group-size', '32'],
    kinds: ['leftRows'],
  },
  'a rule with groups of its own': {
    tensors: { 'a.weight': ['F32', [8, 96]], 'b.weight': ['F32', [8, 64]] },
    options: { to: 'int8', granularity: group(64), rules: [{ match: /a/, to: 'int8', granularity: group(128) }] },
    kinds: ['leftRows'],
  },
  'a rule with another type': {
    tensors: { 'a.weight': ['F32', [8, 96]], 'b.weight': ['F32', [8, 64]] },
    options: { to: 'int8', rules: [{ match: /a/, to: 'int4' }] },
    kinds: ['leftRows'],
  },
  'a rule beside floats': {
    tensors: { 'a.weight': ['F32', [8, 96]], 'b.weight': ['F32', [8, 64]] },
    options: { to: 'bfloat16', rules: [{ match: /a/, to: 'int4' }] },
    flags: ['--to', 'bfloat16', '--rule', 'a=int4'],
    kinds: ['leftRows'],
  },
  'rows of a rule and of the rest': {
    tensors: { 'a.weight': ['F32', [8, 96]], 'b.weight': ['F32', [8, 96]] },
    options: { to: 'int4', rules: [{ match: /a/, to: 'int4', granularity: group(64) }] },
    kinds: ['leftRows', 'leftRows'],
  },
  convolutions: {
    tensors: { 'a.weight': ['F32', [8, 16, 3, 3]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftLayers'],
  },
  'another name, and rows of 96': {
    tensors: { W: ['F32', [8, 96]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftLayers'],
  },
  'another name, and rows of 96 that int8 takes anyway': {
    tensors: { W: ['F32', [8, 96]] },
    options: { to: 'int8' },
    flags: ['--to', 'int8'],
    kinds: ['leftLayers'],
  },
  'another name, where codes would not be smaller': {
    tensors: { W: ['F16', [8, 1]] },
    options: { to: 'int8' },
    flags: ['--to', 'int8'],
    kinds: [],
  },
  float64: {
    tensors: { 'a.weight': ['F64', [8, 128]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftDoubles'],
  },
  'float64 in rows of 96': {
    tensors: { 'a.weight': ['F64', [8, 96]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftDoubles'],
  },
  'float8 of float64': {
    tensors: { 'a.weight': ['F64', [8, 96]] },
    options: { to: 'float8e4m3fn' },
    flags: ['--to', 'float8e4m3fn'],
    kinds: ['leftDoubles'],
  },
  'embeddings alone': {
    tensors: { 'embed_tokens.weight': ['F32', [8, 128]], 'lm_head.weight': ['F32', [8, 128]] },
    options: { to: 'int8' },
    flags: ['--to', 'int8'],
    kinds: ['leftByName'],
  },
  'an embedding in rows of 96': {
    tensors: { 'embed_tokens.weight': ['F32', [8, 96]], 'norm.weight': ['F32', [8]] },
    options: { to: 'int4' },
    flags: ['--to', 'int4'],
    kinds: ['leftByName'],
  },
  'an embedding beside other weights': {
    tensors: { 'embed_tokens.weight': ['F32', [8, 128]], 'a.weight': ['F32', [8, 128]] },
    options: { to: 'int8' },
    flags: ['--to', 'int8'],
    kinds: [],
  },
  'scales and norms alone': {
    tensors: { 'a.weight_scale': ['F32', [8, 16]], 'norm.weight': ['F32', [128]] },
    options: { to: 'int8' },
    flags: ['--to', 'int8'],
    kinds: [],
  },
};

const advised = (plan: ModelPlan) => plan.notes.filter(({ kind }) => kind.startsWith('left'));

/** The options in the code of a note: `a: 1 and b: 'x'`. A rule is one for all tensors of the note. */
function optionsIn(text: string, tensors: readonly string[]): Record<string, unknown> {
  const code = text
    .replace(/^.*?; /, '')
    .replace(/ converts? .*$/, '')
    .replace(/^a rule with (\w+: '\w+')/, (_, member) => {
      return `rules: [{ match: /^(${tensors.join('|').replaceAll('.', '\\.')})$/, ${member} }]`;
    });
  // The text of a note is code for `options`.
  return new Function(`return { ${code.replaceAll(' and ', ', ')} }`)() as Record<string, unknown>;
}

/** Options with others set by their paths: `rules[0].granularity`. */
function withOption(options: PlanModelOptions, path: string, value: unknown): PlanModelOptions {
  const [, rule, member] = /^rules\[(\d+)\]\.(\w+)$/.exec(path) ?? [];
  if (rule === undefined) return { ...options, [path]: value };
  const rules = options.rules?.map((one, i) => (i === Number(rule) ? { ...one, [member as string]: value } : one));
  return { ...options, rules } as PlanModelOptions;
}

const keptOf = ({ tensors }: ModelPlan) => new Set(tensors.flatMap(({ name, kept }) => (kept ? [name] : [])));

describe('notes about kept weights', () => {
  it.each(Object.entries(cases))('%s: the option converts them', async (_, { tensors, options, kinds }) => {
    const file = fileOf(tensors);
    const plan = await planModel(file, options);
    expect(advised(plan).map(({ kind }) => kind)).toEqual(kinds);
    for (const { text, tensors: named = [] } of advised(plan)) {
      const found = /; (rules\[\d+\]\.\w+): /.exec(text)?.[1];
      const set = optionsIn(found === undefined ? text : text.replace(found, 'value'), named);
      let changed = options;
      for (const [path, value] of Object.entries(set)) {
        changed = withOption(changed, path === 'value' ? (found as string) : path, value);
      }
      const kept = keptOf(await planModel(file, changed));
      expect(
        named.filter((name) => kept.has(name)),
        text,
      ).toEqual([]);
    }
  });

  it('reads well', async () => {
    const textOf = async (name: string) => {
      const { tensors, options } = cases[name] as Case;
      return advised(await planModel(fileOf(tensors), options)).map(({ text }) => text);
    };
    expect(await textOf('rows of 96')).toEqual([
      "1 weight stays: rows of 96 cannot be divided into groups of 128; granularity: { kind: 'per-group', groupSize: 32 } converts it",
    ]);
    expect(await textOf('a rule with another type')).toEqual([
      '1 weight stays: rows of 96 cannot be divided into groups of 128; ' +
        "rules[0].granularity: { kind: 'per-group', groupSize: 32 } converts it",
    ]);
    expect(await textOf('another name, and rows of 96')).toEqual([
      "1 weight stays: loaders decode linear layers only; include: 'all' and granularity: { kind: 'per-group', groupSize: 32 } " +
        'convert it, for programs that read the file with Scalepoint',
    ]);
    expect(await textOf('embeddings alone')).toEqual([
      "2 weights stay, because of their names; a rule with to: 'int8' converts them",
    ]);
  });
});

describe('the command line', () => {
  let folder = '';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'scalepoint-advice-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it.each(Object.entries(cases).filter(([, { flags }]) => flags !== undefined))(
    '%s: the flags convert them',
    async (_, { tensors, flags = [], kinds }) => {
      await writeFile(join(folder, 'x.safetensors'), fileOf(tensors));
      const planned = (more: readonly string[]) => {
        // A granularity takes the place of the one given.
        const at = flags.indexOf('--group-size');
        const kept = more.includes('--granularity') && at >= 0 ? flags.toSpliced(at, 2) : flags;
        return run(['plan', 'x.safetensors', ...kept, ...more, '--json'], {}, folder);
      };
      const first = await run(['quantize', 'x.safetensors', ...flags, '-o', 'out', '--force'], {}, folder);
      const advice = first.stderr.split('\n').filter((line) => / converts? (it|them)\b/.test(line));
      expect(advice).toHaveLength(kinds.length);
      const plan: ModelPlan = JSON.parse((await planned(['--force'])).stdout);
      for (const [i, line] of advice.entries()) {
        const named = advised(plan)[i]?.tensors ?? [];
        const pattern = `^(${named.join('|').replaceAll('.', '\\.')})$`;
        const more = [...line.matchAll(/--[a-z-]+( '[^']*'| [\w-]+)?(?= (and|converts?) )/g)].flatMap(([flag]) =>
          flag.replace('REGEX', pattern).replaceAll("'", '').split(' '),
        );
        expect(more.length, line).toBeGreaterThan(0);
        const kept = keptOf(JSON.parse((await planned(more)).stdout));
        expect(
          named.filter((name) => kept.has(name)),
          line,
        ).toEqual([]);
      }
    },
  );

  it('says what only code can set', async () => {
    await writeFile(join(folder, 'x.safetensors'), fileOf(cases['a rule with another type']?.tensors as Shapes));
    const { stderr } = await run(['plan', 'x.safetensors', '--to', 'int8', '--rule', 'a=int4'], {}, folder);
    expect(stderr).not.toMatch(/object Object/);
    expect(stderr).toMatch(/; in code, the granularity { kind: "per-group", groupSize: 32 } of .* converts it\n/);
  });
});

describe('targets that an ONNX note names', () => {
  const half = (dims: readonly number[]) =>
    tensor({ name: 'w', type: 10, dims, raw: new Uint8Array(dims.reduce((a, b) => a * b, 2)) });
  const halfProduct = model({
    nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
    initializers: [half([64, 64])],
    inputs: [['x', [1, 64], 10]],
    outputs: [['y', [1, 64], 10]],
  });
  const convolution = model({
    nodes: [{ op: 'Conv', in: ['x', 'w'], out: ['y'] }],
    initializers: [floatTensor('w', [32, 32, 3, 3])],
    inputs: [['x', [1, 32, 8, 8]]],
    outputs: [['y', [1, 32, 6, 6]]],
  });
  const files = { 'a product in float16': halfProduct, 'a convolution': convolution };
  it.each([
    ['a product in float16', 'q8'],
    ['a product in float16', 'uint8'],
    ['a convolution', 'q4'],
    ['a convolution', 'bnb4'],
  ] as const)('%s as %s', async (what, to) => {
    const file = files[what];
    const plan = await planModel(file, { to } as PlanModelOptions);
    const [note] = plan.notes.filter(({ kind }) => kind === 'nothingConverted');
    const others = (note?.others ?? []) as readonly string[];
    expect(others.length, note?.text).toBeGreaterThan(0);
    for (const other of others) {
      expect(note?.text).toContain(other);
      expect(keptOf(await planModel(file, { to: other } as PlanModelOptions)), other).toEqual(new Set());
    }
  });
});

/** A GGUF model that a plan has advice about, and the option that the advice names, in code and as a flag. */
interface GgufCase {
  readonly file: () => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;
  readonly to: ModelTarget;
  /** The text of the note, or of the error. */
  readonly says: RegExp;
  readonly advised: Partial<PlanModelOptions>;
  readonly flags: RegExp;
}

/** A model with a tensor whose rows of 48 no block divides, and one of a type that is not converted. */
const odd = (dtype: string, ne: readonly number[]) => () =>
  ggufFile({
    pairs: [['general.architecture', 'string', 'llama']],
    tensors: [
      { name: 'blk.0.attn_q.weight', dtype: 'F32', ne: [256, 8] },
      { name: 'blk.0.odd.weight', dtype, ne },
    ],
  });
const keepOdd = { rules: [{ match: /^blk\.0\.odd\.weight$/, keep: true }] } as const;

const ggufCases: Readonly<Record<string, GgufCase>> = {
  'another alignment': {
    file: () => tinyLlama({ alignment: 64 }),
    to: 'Q4_K_M',
    says: /^general\.alignment says 64, .* fixAlignment: true states 32$/,
    advised: { fixAlignment: true },
    flags: /(--fix-alignment) states 32/,
  },
  'codes of another quantization': {
    file: async () => (await quantizeModel(tinyLlama(), { to: 'Q8_0', workers: 0 })).bytes(),
    to: 'Q4_0',
    says: /it is quantized already, as Q8_0; requantize: true quantizes it again/,
    advised: { requantize: true },
    flags: /(--\S+) quantizes it again/,
  },
  'rows that no block divides': {
    file: odd('F32', [48, 8]),
    to: 'Q1_0',
    says: /rows of 48 are not a multiple of Q1_0's blocks of 128, .*; .*keep: true.* copies it/,
    advised: keepOdd,
    flags: /(--rule 'REGEX=keep') copies it/,
  },
  'a type that is not converted': {
    file: odd('I8', [256, 8]),
    to: 'Q8_0',
    says: /I8 cannot be converted to Q8_0; .*keep: true.* copies it/,
    advised: keepOdd,
    flags: /(--rule 'REGEX=keep') copies it/,
  },
};

describe('plans of GGUF', () => {
  const noted = /alignment/;
  const said = (file: Uint8Array<ArrayBuffer>, options: PlanModelOptions) =>
    planModel(file, options).then(
      ({ notes }) => notes.flatMap(({ text }) => (noted.test(text) ? [text] : [])).join('\n'),
      ({ message }: Error) => message,
    );

  it.each(Object.entries(ggufCases))('%s: the option that they name helps', async (_, { file, to, says, advised }) => {
    const bytes = await file();
    expect(await said(bytes, { to })).toMatch(says);
    expect(await said(bytes, { to, ...advised })).toBe('');
    const made = await quantizeModel(bytes, { to, ...advised, workers: 0 });
    expect((await verifyModel(await made.bytes())).problems).toEqual([]);
  });

  it.each(Object.entries(ggufCases))('%s: the flag that they name helps', async (_, { file, to, flags }) => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-advice-'));
    try {
      await writeFile(join(folder, 'x.gguf'), await file());
      const first = await run(['x.gguf', '--to', to as string, '-o', 'a.gguf'], {}, folder);
      const [, flag = ''] = flags.exec(first.stderr) ?? [];
      expect(flag, first.stderr).not.toBe('');
      const words = flag.replace('REGEX', '^blk\\.0\\.odd\\.weight$').replaceAll("'", '').split(' ');
      const { code, stderr } = await run(['x.gguf', '--to', to as string, ...words, '-o', 'b.gguf'], {}, folder);
      expect(code, stderr).toBe(0);
      expect(stderr).not.toMatch(flags);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});
