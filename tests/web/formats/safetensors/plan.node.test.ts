import { describe, expect, it } from 'vitest';
import { checkChoices } from '../../../../web/src/convert/options.js';
import { partsOf } from '../../../../web/src/formats/codecs/registry.js';
import { openSource } from '../../../../web/src/formats/files/open.js';
import type { SourceTensor } from '../../../../web/src/formats/format.js';
import type { PlanChoices, Rule } from '../../../../web/src/formats/options.js';
import type { Reason } from '../../../../web/src/formats/reason.js';
import { mergeConfig } from '../../../../web/src/formats/safetensors/config.js';
import { readSafetensors } from '../../../../web/src/formats/safetensors/header.js';
import type { SafetensorsChoices } from '../../../../web/src/formats/safetensors/layouts/layout.js';
import { planSafetensors } from '../../../../web/src/formats/safetensors/plan.js';
import { safetensors } from '../../../../web/src/formats/safetensors/safetensors.js';
import { plainTensor } from '../../../../web/src/formats/tensors.js';
import { expectProportional } from '../../support/growth.js';
import { type FlatPlan, flat } from '../../support/plans.js';
import { expectRefusal } from '../../support/support.js';

const sizes: Record<string, number> = { F32: 4, F16: 2, BF16: 2, F64: 8, I64: 8, I32: 4, C64: 8 };

/** Tensors one after the other, as in a file. */
function sources(
  tensors: Readonly<Record<string, readonly [dtype: string, shape: readonly number[]]>>,
): SourceTensor[] {
  let byteOffset = 1000;
  return Object.entries(tensors).map(([name, [dtype, shape]]) => {
    const bytes = shape.reduce((a, b) => a * b, 1) * (sizes[dtype] ?? 1);
    byteOffset += bytes;
    return { name, dtype, shape, bytes, byteOffset: byteOffset - bytes, file: 0 };
  });
}

type Tensors = Parameters<typeof sources>[0];

function planOf(tensors: Tensors, choices: SafetensorsChoices, isModel = true): FlatPlan {
  return flat(planSafetensors(sources(tensors).map(plainTensor), choices, { metadata: {}, partsOf, isModel }));
}

/** The fate of each tensor: why it was kept, or the names, types and shapes of its parts. */
function outcome(plan: FlatPlan): Record<string, Reason | string[]> {
  const told = ({ kept, parts }: FlatPlan['tensors'][number]) =>
    kept ?? parts.map(({ role, name, dtype, shape }) => `${role} ${name} ${dtype} [${shape}]`);
  return Object.fromEntries(plan.tensors.map((tensor) => [tensor.source.name, told(tensor)]));
}

/** The data of the notes of a plan. */
const notesOf = ({ notes }: FlatPlan) => notes.map(({ text: _, parts: __, ...data }) => data);

const formOf = (plan: FlatPlan, index = 0) => plan.tensors[index]!.form;

/** The keys of a quantization_config that tests read. */
interface Config {
  format: string;
  ignore: string[];
  config_groups: Record<
    string,
    { targets: string[]; weights: Record<string, unknown>; input_activations: Record<string, unknown> | null }
  >;
}

const configOf = (plan: FlatPlan) => plan.quantizationConfig as unknown as Config;

describe('what weights become', () => {
  const weight: Tensors = { 'x.weight': ['BF16', [24, 256]] };

  it('int8: packed groups of 128, their scales in the type of the weight', () => {
    const plan = planOf(weight, { to: 'int8' });
    expect(outcome(plan)).toEqual({
      'x.weight': [
        'data x.weight_packed I32 [24,64]',
        'scale x.weight_scale BF16 [24,2]',
        'shape x.weight_shape I64 [2]',
      ],
    });
    expect(formOf(plan)).toEqual({
      codec: 'compressed-tensors',
      type: 'int',
      bits: 8,
      symmetric: true,
      groupSize: 128,
      packed: true,
      scale: 'BF16',
    });
    expect(plan.notes).toEqual([]);
  });

  it.each([
    [[256, 384], 128],
    [[256, 384, 64], 64],
    [[256, 320], 64],
    [[256, 96, 64], 32],
    [[256, 100], undefined],
    [[256, 45], undefined],
    // Such a small one has no codes in any case, and therefore does not count.
    [[256, 1], 128],
  ])('int8: rows of %j have groups of %j', (rows, groupSize) => {
    const tensors = Object.fromEntries(rows.map((columns, i) => [`x${i}.weight`, ['F32', [16, columns]]] as const));
    const plan = planOf(tensors, { to: 'int8' });
    const forms = plan.tensors.flatMap(({ form, kept }) => (kept === undefined ? [form] : []));
    expect(forms.length).toBe(rows.filter((columns) => columns > 1).length);
    for (const form of forms) expect(form).toMatchObject({ groupSize, packed: true, bits: 8 });
    // One group of the configuration, which is all that llama.cpp's converter takes.
    expect(Object.keys(configOf(plan).config_groups)).toEqual(['group_0']);
    expect(plan.notes.map(({ kind }) => kind)).toEqual(groupSize === undefined ? ['packedRows'] : []);
  });

  it('int8, not packed: codes as they are, one scale a row in the type of the weight', () => {
    const plan = planOf(weight, { to: 'int8', packed: false });
    expect(notesOf(plan)).toEqual([{ kind: 'plainCodes' }]);
    expect(outcome(plan)).toEqual({
      'x.weight': ['data x.weight I8 [24,256]', 'scale x.weight_scale BF16 [24,1]'],
    });
    expect(formOf(plan)).toEqual({
      codec: 'compressed-tensors',
      type: 'int',
      bits: 8,
      symmetric: true,
      groupSize: undefined,
      packed: false,
      scale: 'BF16',
    });
  });

  it('float8e4m3fn: codes as they are, one scale a row in the type of the weight', () => {
    const plan = planOf(weight, { to: 'float8e4m3fn' });
    expect(outcome(plan)).toEqual({
      'x.weight': ['data x.weight F8_E4M3 [24,256]', 'scale x.weight_scale BF16 [24,1]'],
    });
    expect(formOf(plan)).toEqual({
      codec: 'compressed-tensors',
      type: 'float',
      bits: 8,
      symmetric: true,
      groupSize: undefined,
      packed: false,
      scale: 'BF16',
    });
    expect(plan.size).toBe(plan.header.length + 24 * 256 + 24 * 2);
    const kernel = planOf({ 'conv.weight': ['F32', [6, 5, 7, 3]] }, { to: 'float8e4m3fn', include: 'all' });
    expect(outcome(kernel)['conv.weight']).toEqual([
      'data conv.weight F8_E4M3 [6,5,7,3]',
      'scale conv.weight_scale F32 [6,1,1,1]',
    ]);
    // By a rule, beside casts.
    const rules: Rule[] = [{ match: /x/, to: 'float8e4m3fn' }];
    expect(outcome(planOf(weight, { to: 'float16', scheme: 'asymmetric', rules }))).toEqual(outcome(plan));
  });

  it('int8 asymmetric: zero points shaped like the scales', () => {
    const plan = planOf(weight, { to: 'int8', packed: false, scheme: 'asymmetric' });
    expect(outcome(plan)['x.weight']).toEqual([
      'data x.weight I8 [24,256]',
      'scale x.weight_scale BF16 [24,1]',
      'zeroPoint x.weight_zero_point I8 [24,1]',
    ]);
    expect(formOf(plan)).toMatchObject({ symmetric: false });
  });

  it('int8 packed: words of four, per channel or in groups', () => {
    expect(outcome(planOf(weight, { to: 'int8', granularity: { kind: 'per-channel' } }))['x.weight']).toEqual([
      'data x.weight_packed I32 [24,64]',
      'scale x.weight_scale BF16 [24,1]',
      'shape x.weight_shape I64 [2]',
    ]);
    const groups = planOf(weight, {
      to: 'int8',
      granularity: { kind: 'per-group', groupSize: 64 },
      scheme: 'asymmetric',
    });
    expect(outcome(groups)['x.weight']).toEqual([
      'data x.weight_packed I32 [24,64]',
      'scale x.weight_scale BF16 [24,4]',
      'zeroPoint x.weight_zero_point I32 [6,4]',
      'shape x.weight_shape I64 [2]',
    ]);
    expect(formOf(groups)).toMatchObject({ bits: 8, groupSize: 64, packed: true });
  });

  it('int4: packed groups of 128, or others, or per channel', () => {
    expect(outcome(planOf(weight, { to: 'int4' }))['x.weight']).toEqual([
      'data x.weight_packed I32 [24,32]',
      'scale x.weight_scale BF16 [24,2]',
      'shape x.weight_shape I64 [2]',
    ]);
    for (const groupSize of [8, 32, 64, 256]) {
      const plan = planOf(weight, { to: 'int4', granularity: { kind: 'per-group', groupSize } });
      expect(outcome(plan)['x.weight']).toContain(`scale x.weight_scale BF16 [24,${256 / groupSize}]`);
    }
    const channel = planOf(weight, { to: 'int4', granularity: { kind: 'per-channel' }, scheme: 'asymmetric' });
    expect(outcome(channel)['x.weight']).toEqual([
      'data x.weight_packed I32 [24,32]',
      'scale x.weight_scale BF16 [24,1]',
      'zeroPoint x.weight_zero_point I32 [3,1]',
      'shape x.weight_shape I64 [2]',
    ]);
  });

  it('rounds rows up to whole words, and zero points down the rows too', () => {
    const plan = planOf(
      { 'x.weight': ['F32', [9, 13]] },
      { to: 'int4', granularity: { kind: 'per-channel' }, scheme: 'asymmetric' },
    );
    expect(outcome(plan)['x.weight']).toEqual([
      'data x.weight_packed I32 [9,2]',
      'scale x.weight_scale F32 [9,1]',
      'zeroPoint x.weight_zero_point I32 [2,1]',
      'shape x.weight_shape I64 [2]',
    ]);
  });

  it('stores the shape as int64, known from the header alone', () => {
    const plan = planOf({ 'x.weight': ['F16', [3, 2 ** 33]] }, { to: 'int4' });
    const part = plan.tensors[0]!.parts.find(({ role }) => role === 'shape')!;
    expect(part.bytes).toBe(16);
    const view = new DataView(part.constant!.buffer);
    expect([view.getBigInt64(0, true), view.getBigInt64(8, true)]).toEqual([3n, 2n ** 33n]);
    expect(plan.tensors[0]!.parts[0]).toMatchObject({ bytes: 3 * 2 ** 32, shape: [3, 2 ** 30] });
  });

  it('extends names that do not end in weight in the same way', () => {
    const lstm = planOf({ 'lstm.weight_ih_l0': ['F16', [4, 128]] }, { to: 'int4', include: 'all' });
    expect(outcome(lstm)['lstm.weight_ih_l0']).toEqual([
      'data lstm.weight_ih_l0_packed I32 [4,16]',
      'scale lstm.weight_ih_l0_scale F16 [4,1]',
      'shape lstm.weight_ih_l0_shape I64 [2]',
    ]);
  });

  it('gives convolutions a scale for each output channel, where they are asked for', () => {
    const conv: Tensors = { 'conv.weight': ['F32', [8, 4, 3, 3]], 'a.b.weight': ['F32', [16, 32]] };
    const all = { include: 'all', scheme: 'asymmetric' } as const;
    expect(outcome(planOf(conv, { to: 'int8', packed: false, ...all }))['conv.weight']).toEqual([
      'data conv.weight I8 [8,4,3,3]',
      'scale conv.weight_scale F32 [8,1,1,1]',
      'zeroPoint conv.weight_zero_point I8 [8,1,1,1]',
    ]);
    expect(outcome(planOf(conv, { to: 'int8', ...all }))['conv.weight']).toEqual([
      'data conv.weight_packed I32 [8,9]',
      'scale conv.weight_scale F32 [8,1,1,1]',
      'zeroPoint conv.weight_zero_point I32 [2,1,1,1]',
      'shape conv.weight_shape I64 [4]',
    ]);
    const rules: Rule[] = [{ match: /conv/, to: 'int4', granularity: { kind: 'per-group', groupSize: 8 } }];
    expect(outcome(planOf(conv, { to: 'int4', rules }))['conv.weight']).toEqual([
      'data conv.weight_packed I32 [8,5]',
      'scale conv.weight_scale F32 [8,1,1,1]',
      'shape conv.weight_shape I64 [4]',
    ]);
  });

  it('keeps what loaders do not decode, and says what converts it', () => {
    const tensors: Tensors = {
      'conv.weight': ['F32', [8, 4, 3, 3]],
      'lstm.weight_ih_l0': ['F32', [64, 64]],
      'attention.in_proj_weight': ['F32', [64, 64]],
      'fc.weight': ['F32', [8, 32]],
      weight: ['F32', [8, 32]],
    };
    const plan = planOf(tensors, { to: 'int8' });
    expect(Object.fromEntries(plan.tensors.map(({ source, kept }) => [source.name, kept]))).toEqual({
      'conv.weight': { kind: 'rank', rank: 4 },
      'lstm.weight_ih_l0': { kind: 'notWeight' },
      'attention.in_proj_weight': { kind: 'notWeight' },
      'fc.weight': undefined,
      weight: undefined,
    });
    const left = ['conv.weight', 'lstm.weight_ih_l0', 'attention.in_proj_weight'];
    expect(notesOf(plan)).toEqual([{ kind: 'leftLayers', tensors: left }]);
    expect(plan.notes[0]?.parts).toContainEqual({ kind: 'option', option: 'include', value: 'all' });
    const all = planOf(tensors, { to: 'int8', include: 'all' });
    expect(all.tensors.filter(({ kept }) => kept !== undefined)).toEqual([]);
    expect(notesOf(all)).toContainEqual({ kind: 'codesOfOtherLayers', tensors: left });
    // Few among many: nothing to speak of.
    const few = planOf({ 'patch.weight': ['F32', [8, 3, 4, 4]], 'fc.weight': ['F32', [64, 64]] }, { to: 'int8' });
    expect(few.notes).toEqual([]);
  });

  it("keeps GPT-2's Conv1D, and no layers of the same names that are linear", () => {
    const names = ['h.0.attn.c_attn.weight', 'h.0.attn.c_proj.weight', 'h.0.mlp.c_fc.weight', 'h.0.x.weight'];
    const model = (rows: number, columns: number): Tensors =>
      Object.fromEntries(names.map((name, i) => [name, ['F32', i === 0 ? [rows, columns] : [64, 64]]]));
    const kept = (tensors: Tensors) => planOf(tensors, { to: 'int8' }).tensors.map((tensor) => tensor.kept);
    expect(kept(model(64, 192))).toEqual([...Array.from({ length: 3 }, () => ({ kind: 'conv1D' })), undefined]);
    expect(kept(model(192, 64))).toEqual([undefined, undefined, undefined, undefined]);
  });

  it('float16 and bfloat16: every float, whatever it is called', () => {
    const tensors: Tensors = {
      'a.weight': ['F32', [4, 4]],
      'norm.weight': ['F64', [4]],
      'a.bias': ['BF16', [4]],
      'half.weight': ['F16', [4, 4]],
      scalar: ['F32', []],
      empty: ['F32', [0, 4]],
      ids: ['I64', [4]],
      'gain.scale': ['F32', [4]],
    };
    expect(outcome(planOf(tensors, { to: 'float16' }))).toEqual({
      'a.weight': ['data a.weight F16 [4,4]'],
      'norm.weight': ['data norm.weight F16 [4]'],
      'a.bias': ['data a.bias F16 [4]'],
      'half.weight': { kind: 'sameType' },
      scalar: ['data scalar F16 []'],
      empty: ['data empty F16 [0,4]'],
      ids: { kind: 'nonFloat', dtype: 'I64' },
      'gain.scale': ['data gain.scale F16 [4]'],
    });
    const brain = planOf(tensors, { to: 'bfloat16' });
    expect(formOf(brain)).toEqual({ codec: 'cast', to: 'BF16' });
    expect(outcome(brain)).toMatchObject({
      'a.bias': { kind: 'sameType' },
      'half.weight': ['data half.weight BF16 [4,4]'],
    });
    expect(brain.quantizationConfig).toBeUndefined();
  });

  it('keeps small floats and complex numbers', () => {
    const tensors: Tensors = {
      'q.weight': ['F8_E4M3', [4, 4]],
      'p.weight': ['F4', [4, 4]],
      six: ['F6_E2M3', [4, 4]],
      phase: ['C64', [4, 4]],
    };
    const kept = {
      'q.weight': { kind: 'smallFloat', bits: 8 },
      'p.weight': { kind: 'smallFloat', bits: 4 },
      six: { kind: 'smallFloat', bits: 6 },
      phase: { kind: 'complex' },
    };
    expect(outcome(planOf(tensors, { to: 'float16' }))).toEqual(kept);
    expect(outcome(planOf(tensors, { to: 'int8' }))).toEqual(kept);
  });
});

describe('what is kept', () => {
  it('keeps by name what is small and matters, and says why', () => {
    const kinds: Record<string, string> = {
      'model.embed_tokens.weight': 'embedding',
      'lm_head.weight': 'lmHead',
      'model.layers.0.input_layernorm.weight': 'norm',
      'h.0.attn.bias': 'bias',
      'model.layers.0.mlp.gate.weight': 'router',
      'model.layers.0.mlp.shared_expert_gate.weight': 'router',
      'model.layers.0.block_sparse_moe.router.layer.weight': 'router',
      'old.weight_scale': 'scale',
      'old.scales': 'scale',
      'old.qzeros': 'zeroPoint',
    };
    const weights = [
      'model.layers.0.mlp.experts.3.gate_proj.weight',
      'model.layers.0.self_attn.q_proj.weight',
      // Nothing here has experts.
      'model.layers.1.mlp.gate.weight',
      'norm1.linear.weight',
    ];
    const names = [...Object.keys(kinds), ...weights];
    const plan = planOf(Object.fromEntries(names.map((name) => [name, ['F32', [128, 128]]])), { to: 'int4' });
    const kept = plan.tensors.flatMap(({ source, kept }) => (kept === undefined ? [] : [[source.name, kept.kind]]));
    expect(Object.fromEntries(kept)).toEqual(kinds);
  });

  it('keeps what has no rows, no elements, or would not become smaller', () => {
    const tensors: Tensors = {
      scalar: ['F32', []],
      empty: ['F32', [0, 4]],
      line: ['F32', [400]],
      narrow: ['F32', [8, 1]],
      enough: ['F32', [8, 2]],
      double: ['F64', [8, 8]],
    };
    expect(outcome(planOf(tensors, { to: 'int8', packed: false, include: 'all' }))).toEqual({
      scalar: { kind: 'rank', rank: 0 },
      empty: { kind: 'empty' },
      line: { kind: 'rank', rank: 1 },
      narrow: { kind: 'notSmaller' },
      enough: ['data enough I8 [8,2]', 'scale enough_scale F32 [8,1]'],
      double: { kind: 'dtype', dtype: 'F64' },
    });
    // With zero points and the shape, 40 bytes of float16 are 16 of codes, 8 of scales, 4 of zero points and 16 of shape.
    const small: Tensors = { 'x.weight': ['F16', [4, 5]] };
    expect(outcome(planOf(small, { to: 'int4', granularity: { kind: 'per-channel' }, scheme: 'asymmetric' }))).toEqual({
      'x.weight': { kind: 'notSmaller' },
    });
  });

  it('keeps rows that the groups do not divide, rule or not', () => {
    const tensors: Tensors = { 'x.weight': ['F32', [100, 100]], 'y.weight': ['F32', [100, 192]] };
    const plan = planOf(tensors, { to: 'int4' });
    expect(outcome(plan)).toEqual({
      'x.weight': { kind: 'notDivisible', dimension: 100, by: 128 },
      'y.weight': { kind: 'notDivisible', dimension: 192, by: 128 },
    });
    expect(notesOf(plan)).toEqual([
      { kind: 'leftRows', tensors: ['x.weight', 'y.weight'], columns: [100, 192], groupSizes: [128] },
    ]);
    expect(plan.notes[0]?.parts).toContainEqual({
      kind: 'option',
      option: 'granularity',
      value: { kind: 'per-channel' },
    });
    const one = planOf({ 'x.weight': ['F32', [8, 11616]] }, { to: 'int4' });
    expect(one.notes[0]?.parts).toContainEqual({
      kind: 'option',
      option: 'granularity',
      value: { kind: 'per-group', groupSize: 32 },
    });
    const doubles = planOf({ 'x.weight': ['F64', [8, 128]] }, { to: 'int4' });
    expect(notesOf(doubles)).toEqual([{ kind: 'leftDoubles', tensors: ['x.weight'] }]);
    const rules: Rule[] = [
      { match: /x/, to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } },
      { match: /y/, to: 'int8' },
    ];
    expect(outcome(planOf(tensors, { to: 'int4', rules }))).toEqual({
      'x.weight': { kind: 'notDivisible', dimension: 100, by: 32 },
      // All rows that become int8 can be cut in groups of 64.
      'y.weight': [
        'data y.weight_packed I32 [100,48]',
        'scale y.weight_scale F32 [100,3]',
        'shape y.weight_shape I64 [2]',
      ],
    });
  });

  it('keeps a weight if one of its parts would take the name of another tensor', () => {
    for (const [suffix, role] of [
      ['_packed', 'data'],
      ['_scale', 'scale'],
      ['_zero_point', 'zeroPoint'],
      ['_shape', 'shape'],
    ] as const) {
      const tensors: Tensors = { 'x.weight': ['F32', [64, 128]], [`x.weight${suffix}`]: ['F32', [4]] };
      const { 'x.weight': kept } = outcome(planOf(tensors, { to: 'int4', scheme: 'asymmetric' }));
      expect(kept).toEqual({ kind: 'nameTaken', role });
    }
    // Not packed and symmetric, only one name is needed.
    const tensors: Tensors = {
      'x.weight': ['F32', [64, 128]],
      'x.weight_shape': ['F32', [4]],
      'x.weight_zero_point': ['F32', [4]],
    };
    expect(outcome(planOf(tensors, { to: 'int8', packed: false }))['x.weight']).toHaveLength(2);
  });

  it('lets the first rule that matches decide, with flags that remember places too', () => {
    const tensors: Tensors = {
      'embed.weight': ['F32', [64, 128]],
      'a.weight': ['F32', [64, 128]],
      'b.weight': ['F32', [64, 128]],
      'b.bias': ['F32', [4]],
      'c.weight': ['F32', [64, 128]],
      'd.weight': ['F64', [64, 2]],
    };
    const rules: Rule[] = [
      { match: /^embed/, to: 'int4' },
      { match: /a\./gy, keep: true },
      { match: /b/g, to: 'int8' },
      { match: /c/, to: 'float16' },
      { match: /d/, to: 'int8' },
      { match: /./, keep: true },
    ];
    expect(outcome(planOf(tensors, { to: 'bfloat16', rules }))).toEqual({
      'embed.weight': [
        'data embed.weight_packed I32 [64,16]',
        'scale embed.weight_scale F32 [64,1]',
        'shape embed.weight_shape I64 [2]',
      ],
      'a.weight': { kind: 'rule' },
      'b.weight': [
        'data b.weight_packed I32 [64,32]',
        'scale b.weight_scale F32 [64,1]',
        'shape b.weight_shape I64 [2]',
      ],
      'b.bias': { kind: 'bias' },
      'c.weight': ['data c.weight F16 [64,128]'],
      'd.weight': [
        'data d.weight_packed I32 [64,1]',
        'scale d.weight_scale F32 [64,1]',
        'shape d.weight_shape I64 [2]',
      ],
    });
  });

  it('minds no names in a .npy file, and takes float64', () => {
    const plan = planOf({ embedding: ['F64', [16, 16]] }, { to: 'int8' }, false);
    expect(outcome(plan)).toEqual({
      embedding: [
        'data embedding_packed I32 [16,4]',
        'scale embedding_scale F32 [16,1]',
        'shape embedding_shape I64 [2]',
      ],
    });
    expect(plan.notes).toEqual([]);
    const cube = planOf({ cube: ['F32', [16, 4, 4]] }, { to: 'int8' }, false);
    expect(outcome(cube).cube).toContain('data cube_packed I32 [16,4]');
    expect(plan.quantizationConfig).toBeUndefined();
  });
});

describe('the file', () => {
  it('is laid out as its own header says, for any form', async () => {
    const tensors: Tensors = {
      'b.weight': ['F16', [32, 128]],
      'a.weight': ['BF16', [10, 256]],
      'conv.weight': ['F32', [4, 2, 3]],
      'ids.weight': ['I64', [3]],
      'n.bias': ['F32', [7]],
    };
    const forms: SafetensorsChoices[] = [
      { to: 'int8' },
      { to: 'int8', scheme: 'asymmetric' },
      { to: 'int4' },
      { to: 'int4', scheme: 'asymmetric' },
      { to: 'float16' },
    ];
    const metadata = { format: 'pt', __proto__x: 'é' };
    for (const options of forms) {
      const plan = flat(
        planSafetensors(sources(tensors).map(plainTensor), options, { metadata, partsOf, isModel: true }),
      );
      const file = new Uint8Array(plan.size);
      file.set(plan.header);
      const { tensors: read, metadata: its } = await readSafetensors(await openSource(file));
      expect({ ...its }).toEqual(metadata);
      const parts = plan.tensors.flatMap(({ parts }) =>
        parts.map(({ name, dtype, shape, bytes, byteOffset }) => ({ name, dtype, shape, bytes, byteOffset, file: 0 })),
      );
      expect(parts.sort((a, b) => a.byteOffset - b.byteOffset)).toEqual(read);
      for (const { source, parts } of plan.tensors) {
        expect(parts[0]!.role).toBe('data');
        expect(source).toBe(plan.tensors.find((other) => other.source === source)!.source);
      }
    }
  });

  it('keeps the order of the input in the plan, and which file a tensor is in', () => {
    const input = sources({ z: ['F32', [4, 4]], a: ['F32', [4, 4]] }).map((tensor, file) => ({ ...tensor, file }));
    const plan = flat(
      planSafetensors(input.map(plainTensor), { to: 'int8' }, { metadata: {}, partsOf, isModel: true }),
    );
    expect(plan.tensors.map(({ source }) => source)).toEqual(input);
  });

  it('is planned in time that is proportional to the number of tensors', async () => {
    await expectProportional((n) => {
      const many = Object.fromEntries(
        Array.from({ length: n }, (_, i) => [`layers.${i}.weight`, ['F16', [64, 128]]] as const),
      );
      return () => expect(planOf(many, { to: 'int4' }).tensors).toHaveLength(n);
    }, 5000);
  });
});

describe('the quantization_config', () => {
  const model: Tensors = {
    'lm_head.weight': ['BF16', [512, 128]],
    'model.embed_tokens.weight': ['BF16', [512, 128]],
    'model.layers.0.mlp.down_proj.weight': ['BF16', [128, 256]],
    'model.layers.0.mlp.odd.weight': ['BF16', [128, 100]],
    'model.layers.0.norm.weight': ['BF16', [128]],
    'model.layers.0.self_attn.q_proj.weight': ['BF16', [128, 128]],
  };
  const down = 'model.layers.0.mlp.down_proj';
  const query = 'model.layers.0.self_attn.q_proj';

  it('is the one of compressed-tensors, key by key', () => {
    const { quantizationConfig } = planOf(model, { to: 'int4' });
    expect(JSON.stringify(quantizationConfig)).toBe(
      JSON.stringify({
        quant_method: 'compressed-tensors',
        format: 'pack-quantized',
        quantization_status: 'compressed',
        global_compression_ratio: null,
        ignore: ['lm_head', 'model.embed_tokens', 'model.layers.0.mlp.odd'],
        kv_cache_scheme: null,
        config_groups: {
          group_0: {
            targets: ['Linear'],
            weights: {
              num_bits: 4,
              type: 'int',
              symmetric: true,
              strategy: 'group',
              group_size: 128,
              dynamic: false,
              actorder: null,
              block_structure: null,
              observer: 'minmax',
              observer_kwargs: {},
            },
            input_activations: null,
            output_activations: null,
            format: 'pack-quantized',
          },
        },
        sparsity_config: {},
        transform_config: {},
        version: '0.11.0',
      }),
    );
  });

  it('tells int8 forms apart', () => {
    const plain = configOf(planOf(model, { to: 'int8', packed: false, scheme: 'asymmetric' }));
    expect(plain).toMatchObject({ format: 'naive-quantized', ignore: ['lm_head', 'model.embed_tokens'] });
    expect(plain.config_groups.group_0).toMatchObject({
      weights: { num_bits: 8, symmetric: false, strategy: 'channel', group_size: null },
      input_activations: null,
    });
    const dynamic = configOf(planOf(model, { to: 'int8', activations: 'int8-dynamic' }));
    expect(dynamic.format).toBe('int-quantized');
    expect(dynamic.config_groups.group_0).toMatchObject({
      weights: { num_bits: 8, type: 'int', symmetric: true, strategy: 'channel', dynamic: false },
      input_activations: { num_bits: 8, type: 'int', symmetric: true, strategy: 'token', dynamic: true },
    });
    expect(Object.keys(dynamic.config_groups.group_0!.input_activations!)).toEqual(
      Object.keys(dynamic.config_groups.group_0!.weights),
    );
    expect(configOf(planOf(model, { to: 'int8', packed: true })).format).toBe('pack-quantized');
  });

  it('names float8 by its type', () => {
    const config = configOf(planOf(model, { to: 'float8e4m3fn' }));
    expect(config).toMatchObject({ format: 'float-quantized', ignore: ['lm_head', 'model.embed_tokens'] });
    expect(config.config_groups).toEqual({
      group_0: {
        targets: ['Linear'],
        weights: {
          num_bits: 8,
          type: 'float',
          symmetric: true,
          strategy: 'channel',
          group_size: null,
          dynamic: false,
          actorder: null,
          block_structure: null,
          observer: 'minmax',
          observer_kwargs: {},
        },
        input_activations: null,
        output_activations: null,
        format: 'float-quantized',
      },
    });
  });

  it('names the modules of each group where there are several, all in one form', () => {
    const rules: Rule[] = [{ match: /down_proj/, to: 'int8' }];
    const plan = planOf(model, { to: 'int4', rules });
    const { format, config_groups, ignore } = configOf(plan);
    expect(format).toBe('pack-quantized');
    expect(config_groups).toMatchObject({
      group_0: { targets: [down], weights: { num_bits: 8, strategy: 'group', group_size: 128 } },
      group_1: { targets: [query], weights: { num_bits: 4, strategy: 'group', group_size: 128 } },
    });
    expect(Object.keys(config_groups)).toHaveLength(2);
    expect(ignore).toEqual(['lm_head', 'model.embed_tokens', 'model.layers.0.mlp.odd']);
    const other = planOf(model, { to: 'int8', rules: [{ match: /q_proj/, to: 'int4' }] });
    expect(configOf(other).format).toBe('pack-quantized');
    expect(outcome(other)[`${down}.weight`]).toContain(`data ${down}.weight_packed I32 [128,64]`);
  });

  it('tells groups of different sizes apart', () => {
    const rules: Rule[] = [{ match: /q_proj/, to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } }];
    const { config_groups } = configOf(planOf(model, { to: 'int4', rules }));
    expect(Object.values(config_groups).map(({ weights }) => weights.group_size)).toEqual([128, 32]);
  });

  it('names embeddings and convolutions beside the linear layers', () => {
    const tensors: Tensors = {
      ...model,
      'features.conv.weight': ['BF16', [8, 4, 3, 3]],
      'lstm.weight_hh_l0': ['BF16', [64, 64]],
    };
    const { config_groups, ignore } = configOf(
      planOf(tensors, { to: 'int8', packed: false, include: 'all', rules: [{ match: /embed_tokens/, to: 'int8' }] }),
    );
    expect(config_groups.group_0!.targets).toEqual(['Linear', 'model.embed_tokens', 'features.conv']);
    expect(ignore).toEqual(['lm_head']);
  });

  it('ignores an output layer that shares the embedding, and quantizes one that a rule asks for', () => {
    const { 'lm_head.weight': _, ...tied } = model;
    expect(configOf(planOf(tied, { to: 'int8' })).ignore).toEqual(['model.embed_tokens', 'lm_head']);
    expect(configOf(planOf(model, { to: 'int8', rules: [{ match: /lm_head/, to: 'int8' }] })).ignore).toEqual([
      'model.embed_tokens',
    ]);
    const plain = planOf({ 'fc.weight': ['F32', [64, 64]] }, { to: 'int8' });
    expect(configOf(plain).ignore).toEqual([]);
  });

  it('is left out where nothing has codes', () => {
    expect(planOf({ 'a.bias': ['F32', [4]] }, { to: 'int8' }).quantizationConfig).toBeUndefined();
  });
});

describe('merging into config.json', () => {
  const { quantizationConfig } = planOf({ 'fc.weight': ['F32', [64, 64]] }, { to: 'int8' });
  const ours = quantizationConfig!;

  it('puts it last and keeps the rest in order, without changing the given object', () => {
    const config = { model_type: 'llama', architectures: ['X'], hidden_size: 4 };
    const merged = mergeConfig(config, ours);
    expect(Object.keys(merged)).toEqual(['model_type', 'architectures', 'hidden_size', 'quantization_config']);
    expect(merged.quantization_config).toBe(ours);
    expect(config).not.toHaveProperty('quantization_config');
  });

  it('replaces one of the same method, and an empty one', () => {
    const before = { quantization_config: { quant_method: 'compressed-tensors', format: 'old' }, a: 1 };
    expect(Object.keys(mergeConfig(before, ours))).toEqual(['a', 'quantization_config']);
    expect(mergeConfig({ quantization_config: null }, ours).quantization_config).toBe(ours);
  });

  it('refuses a model that is quantized by other means', () => {
    for (const before of [{ quant_method: 'gptq' }, {}, 'x']) {
      const merge = () => mergeConfig({ quantization_config: before }, ours);
      expect(merge).toThrow(expect.objectContaining({ code: 'BAD_FILE', name: 'ScalepointError' }));
    }
    expect(() => mergeConfig({ quantization_config: { quant_method: 'gptq' } }, ours)).toThrow(/"gptq"/);
  });

  it('refuses values other than objects', () => {
    for (const config of [undefined, null, 4, '{}', []]) {
      expectRefusal(() => mergeConfig(config, ours), TypeError, 'config');
    }
  });
});

describe('options', () => {
  const check = (options: object) => () => checkChoices(safetensors, options as PlanChoices);
  const perGroup = (groupSize: unknown) => ({ kind: 'per-group', groupSize });

  it('names the targets', () => {
    for (const to of ['int8', 'int4', 'float8e4m3fn', 'float16', 'bfloat16']) check({ to })();
    for (const to of ['q8', 'int3', '', undefined, 'toString']) expectRefusal(check({ to }), RangeError, 'to');
    // Models that can be converted become a target of the other format.
    expect(checkChoices(safetensors, { to: 'Q8_0' }).format.name).toBe('gguf');
  });

  it('refuses wrong values by the name of the option', () => {
    expectRefusal(check({}), RangeError, 'to');
    expectRefusal(check({ to: 'q4' }), RangeError, 'to');
    expectRefusal(check({ to: 'int8', scheme: 'both' }), RangeError, 'scheme');
    expectRefusal(check({ to: 'int8', packed: 1 }), TypeError, 'packed');
    expectRefusal(check({ to: 'int8', activations: 'int8' }), RangeError, 'activations');
    expectRefusal(check({ to: 'int8', granularity: 'per-channel' }), TypeError, 'granularity');
    expectRefusal(check({ to: 'int8', granularity: { kind: 'per-tensor' } }), RangeError, 'granularity.kind');
    expectRefusal(
      check({ to: 'int8', granularity: { kind: 'per-channel', groupSize: 8 } }),
      RangeError,
      'granularity.groupSize',
    );
    for (const size of [undefined, 0, -8, 12, 8.5, '32', Infinity, Number.NaN, 2 ** 18 + 8]) {
      expectRefusal(check({ to: 'int4', granularity: perGroup(size) }), RangeError, 'granularity.groupSize');
    }
    expectRefusal(check({ to: 'int8', rules: {} }), TypeError, 'rules');
    expectRefusal(check({ to: 'int8', rules: [null] }), TypeError, 'rules[0]');
    expectRefusal(check({ to: 'int8', rules: [{ match: 5, keep: true }] }), TypeError, 'rules[0].match');
    expectRefusal(check({ to: 'int8', rules: [{ match: '(?<=x)', keep: true }] }), RangeError, 'rules[0].match');
    expectRefusal(check({ to: 'int8', rules: [{ match: /x/, keep: 'yes', to: 'int8' }] }), TypeError, 'rules[0].keep');
    expectRefusal(check({ to: 'int8', rules: [{ match: /x/ }] }), RangeError, 'rules[0]');
    expectRefusal(check({ to: 'int8', rules: [{ match: /x/, keep: true, to: 'int8' }] }), RangeError, 'rules[0]');
    expectRefusal(check({ to: 'int8', rules: [{ match: /x/, to: 'Q8_0' }] }), RangeError, 'rules[0].to');
    const rule = { match: /x/, to: 'int4', granularity: perGroup(7) };
    expectRefusal(check({ to: 'int8', rules: [rule] }), RangeError, 'rules[0].granularity.groupSize');
    const cast = { match: /x/, to: 'float16', granularity: perGroup(8) };
    expectRefusal(check({ to: 'int8', rules: [cast] }), RangeError, 'rules[0].granularity');
  });

  describe.each(['float16', 'bfloat16'])('that mean nothing for %s', (to) => {
    const cases: readonly [string, unknown][] = [
      ['scheme', 'symmetric'],
      ['scheme', 'asymmetric'],
      ['granularity', { kind: 'per-channel' }],
      ['granularity', perGroup(32)],
      ['range', 'mse'],
      ['range', 'min-max'],
      ['packed', true],
      ['packed', false],
      ['activations', 'int8-dynamic'],
      ['include', 'all'],
    ];
    it.each(cases)('%s: %o is refused', (option, value) => {
      expectRefusal(check({ to, [option]: value }), RangeError, option);
      const keep = { match: /x/, keep: true };
      const other = { match: /x/, to: to === 'float16' ? 'bfloat16' : 'float16' };
      expectRefusal(check({ to, [option]: value, rules: [keep, other] }), RangeError, option);
    });

    it.each(cases)('%s: %o is accepted where a rule makes int8, unless it is about which weights', (option, value) => {
      const given = { to, [option]: value, rules: [{ match: /x/, to: 'int8' }] };
      if (option === 'include') expectRefusal(check(given), RangeError, option);
      else check(given)();
    });

    it('is accepted where it says what float8 of a rule is anyway', () => {
      const rules = [{ match: /x/, to: 'float8e4m3fn' }];
      check({ to, rules, scheme: 'symmetric', granularity: { kind: 'per-channel' }, packed: false })();
      expectRefusal(check({ to, rules, scheme: 'asymmetric' }), RangeError, 'scheme');
      expectRefusal(check({ to, rules, granularity: perGroup(32) }), RangeError, 'granularity');
      expectRefusal(check({ to, rules, packed: true }), RangeError, 'packed');
      expectRefusal(check({ to, rules, range: 'mse' }), RangeError, 'range');
    });

    it('is heeded where a rule makes integers', () => {
      const tensors: Tensors = { 'x.weight': ['F32', [8, 64]], 'y.weight': ['F32', [8, 64]] };
      const rules = [{ match: /^x/, to: 'int4' as const }];
      const choices = {
        scheme: 'asymmetric',
        range: 'mse',
        granularity: { kind: 'per-group', groupSize: 32 },
      } as const;
      const plan = planOf(tensors, { to: to as 'float16', rules, ...choices });
      expect(formOf(plan)).toMatchObject({ bits: 4, symmetric: false, groupSize: 32, range: 'mse' });
      expect(formOf(plan, 1)).toEqual({ codec: 'cast', to: to === 'float16' ? 'F16' : 'BF16' });
    });
  });

  it('leaves the granularity of a rule with another integer type alone', () => {
    const rules = [{ match: /^x/, to: 'int4' as const }];
    const granularity = { kind: 'per-group', groupSize: 32 } as const;
    const plan = planOf({ 'x.weight': ['F32', [8, 128]] }, { to: 'int8', granularity, rules });
    expect(formOf(plan)).toMatchObject({ bits: 4, groupSize: 128 });
  });

  it('refuses what does not go together', () => {
    expectRefusal(check({ to: 'float16', granularity: { kind: 'per-channel' } }), RangeError, 'granularity');
    expectRefusal(check({ to: 'float16', activations: 'int8-dynamic' }), RangeError, 'activations');
    expectRefusal(check({ to: 'int4', packed: false }), RangeError, 'packed');
    expectRefusal(check({ to: 'int8', packed: false, granularity: perGroup(32) }), RangeError, 'packed');
    expectRefusal(check({ to: 'int8', packed: false, rules: [{ match: /x/, to: 'int4' }] }), RangeError, 'packed');
    const dynamic = { to: 'int8', activations: 'int8-dynamic' };
    expectRefusal(check({ ...dynamic, to: 'int4' }), RangeError, 'activations');
    expectRefusal(check({ ...dynamic, scheme: 'asymmetric' }), RangeError, 'activations');
    expectRefusal(check({ ...dynamic, packed: true }), RangeError, 'activations');
    expectRefusal(check({ ...dynamic, granularity: perGroup(32) }), RangeError, 'activations');
    expectRefusal(check({ ...dynamic, rules: [{ match: /x/, to: 'int4' }] }), RangeError, 'activations');
    const float8 = { to: 'float8e4m3fn' };
    expectRefusal(check({ ...float8, granularity: perGroup(32) }), RangeError, 'granularity');
    expectRefusal(check({ ...float8, scheme: 'asymmetric' }), RangeError, 'scheme');
    expectRefusal(check({ ...float8, packed: true }), RangeError, 'packed');
    expectRefusal(check({ ...float8, activations: 'int8-dynamic' }), RangeError, 'activations');
    expectRefusal(check({ ...float8, rules: [{ match: /x/, to: 'int8' }] }), RangeError, 'rules[0].to');
    expectRefusal(check({ to: 'int4', rules: [{ match: /x/, ...float8 }] }), RangeError, 'rules[0].to');
    const [first, second] = [
      { match: /x/, ...float8 },
      { match: /y/, to: 'int4' },
    ];
    expectRefusal(check({ to: 'float16', rules: [first, second] }), RangeError, 'rules[1].to');
    const channel = { kind: 'per-channel' };
    check({
      ...float8,
      granularity: channel,
      scheme: 'symmetric',
      packed: false,
      rules: [{ match: /x/, to: 'float16' }],
    })();
    check({ ...dynamic, packed: false, scheme: 'symmetric', rules: [{ match: /x/, to: 'bfloat16' }] })();
  });
});
