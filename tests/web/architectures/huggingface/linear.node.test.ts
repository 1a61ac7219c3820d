import { type DecoderCase, type FolderJson, testDecoders, testRefusals } from '../../support/decoder-cases.js';
import { changed, common, gated, type Keys, outside, prefix } from '../../support/decoder-tables.js';
import {
  type Decoder,
  dot,
  joined,
  mixed,
  multiply,
  type Reader,
  rotaryFrequencies,
  rotate,
  sigmoid,
  silu,
  slices,
  type Vector,
} from '../../support/forward.js';

/** Two heads of keys and four of values, of 16 elements each; a convolution over 4 tokens. */
const [keyHeads, valueHeads, size, seen] = [2, 4, 16, 4];
const each = valueHeads / keyHeads;

const unit = (x: Vector) => x.map((v) => v / Math.sqrt(dot(x, x) + 1e-6));

/** Projections of a token: queries, keys and values side by side, gates, and for each head of values two numbers. */
type Project = (read: Reader, own: string, x: Vector) => { qkv: Vector; z: Vector; b: Vector; a: Vector };

/** Qwen3-Next has all parts of a head of keys together. */
const grouped: Project = (read, own, x) => {
  const heads = slices(read.linear(`${own}in_proj_qkvz`, x), (2 + 2 * each) * size);
  const part = (first: number, count: number) =>
    joined(heads.map((head) => head.slice(first * size, (first + count) * size)));
  const ba = slices(read.linear(`${own}in_proj_ba`, x), 2 * each);
  return {
    qkv: joined([part(0, 1), part(1, 1), part(2, each)]),
    z: part(2 + each, each),
    b: joined(ba.map((pair) => pair.slice(0, each))),
    a: joined(ba.map((pair) => pair.slice(each))),
  };
};

const apart: Project = (read, own, x) => ({
  qkv: read.linear(`${own}in_proj_qkv`, x),
  z: read.linear(`${own}in_proj_z`, x),
  b: read.linear(`${own}in_proj_b`, x),
  a: read.linear(`${own}in_proj_a`, x),
});

/** A gated delta net: a state for each head of values, which decays, forgets what a key held, and takes its new value. */
function deltaNet(project: Project, read: Reader, own: string, x: readonly Vector[]): Vector[] {
  const parts = x.map((one) => project(read, own, one));
  const kernel = read.get(`${own}conv1d.weight`).values;
  const convolved = parts.map((_, t) =>
    silu(
      parts[t]!.qkv.map((_v, c) => {
        let sum = 0;
        for (let k = 0; k < seen; k++) sum += kernel[c * seen + k]! * (parts[t - seen + 1 + k]?.qkv[c] ?? 0);
        return sum;
      }),
    ),
  );
  const decays = read.get(`${own}A_log`).values;
  const steps = read.get(`${own}dt_bias`).values;
  const states = Array.from({ length: valueHeads }, () => Array.from({ length: size }, () => new Float64Array(size)));
  return convolved.map((all, t) => {
    const heads = slices(all, size);
    const { z, a, b } = parts[t]!;
    const outputs = states.map((state, h) => {
      const of = Math.floor(h / each);
      const query = unit(heads[of]!).map((v) => v / Math.sqrt(size));
      const key = unit(heads[keyHeads + of]!);
      const value = heads[2 * keyHeads + h]!;
      const decay = Math.exp(-Math.exp(decays[h]!) * Math.log1p(Math.exp(a[h]! + steps[h]!)));
      for (const row of state) for (let j = 0; j < size; j++) row[j]! *= decay;
      const held = Float64Array.from({ length: size }, (_, j) =>
        state.reduce((sum, row, i) => sum + row[j]! * key[i]!, 0),
      );
      const change = value.map((v, j) => (v - held[j]!) * sigmoid(b[h]!));
      for (const [i, row] of state.entries()) for (let j = 0; j < size; j++) row[j]! += key[i]! * change[j]!;
      const output = Float64Array.from({ length: size }, (_, j) =>
        state.reduce((sum, row, i) => sum + row[j]! * query[i]!, 0),
      );
      return multiply(read.rms(`${own}norm`, output, 1e-6, 0), silu(z.slice(h * size, (h + 1) * size)));
    });
    return read.linear(`${own}out_proj`, joined(outputs));
  });
}

/** Attention with a gate for each element of a head; a quarter of 16 elements turns. */
function gatedAttention(read: Reader, own: string, x: readonly Vector[]): Vector[] {
  const frequencies = rotaryFrequencies(10000, 4);
  const turned = (name: string, head: Vector, t: number) =>
    rotate(read.rms(`${own}${name}`, head, 1e-6, 1), t, frequencies, 1);
  const both = x.map((one) => slices(read.linear(`${own}q_proj`, one), 32));
  const keys = x.map((one, t) => slices(read.linear(`${own}k_proj`, one), 16).map((head) => turned('k_norm', head, t)));
  const values = x.map((one) => slices(read.linear(`${own}v_proj`, one), 16));
  const queries = both.map((heads, t) => heads.map((head) => turned('q_norm', head.slice(0, 16), t)));
  const gates = both.map((heads) => joined(heads.map((head) => head.slice(16).map(sigmoid))));
  const all = mixed(queries, keys, values, (product, t, s) => (s > t ? -Infinity : product / 4));
  return all.map((one, t) => read.linear(`${own}o_proj`, multiply(one, gates[t]!)));
}

const attend =
  (project: Project): NonNullable<Decoder['attend']> =>
  (read, p, layer, x) =>
    layer % 4 === 3 ? gatedAttention(read, `${p}self_attn.`, x) : deltaNet(project, read, `${p}linear_attn.`, x);

const model = (project: Project): Partial<Decoder> => ({
  headName: 'lm_head.weight',
  epsilon: 1e-6,
  normPlus: 1,
  attend: attend(project),
});

const experts: Partial<Decoder> = {
  usedExperts: 2,
  experts: {
    router: 'mlp.gate',
    expert: (e) => [`mlp.experts.${e}.gate_proj`, `mlp.experts.${e}.up_proj`, `mlp.experts.${e}.down_proj`],
  },
  shares: { of: 'all', normalized: true },
  shared: ['mlp.shared_expert.gate_proj', 'mlp.shared_expert.up_proj', 'mlp.shared_expert.down_proj'],
  sharedGate: 'mlp.shared_expert_gate',
};

const linearConfig: FolderJson = {
  rms_norm_eps: 1e-6,
  head_dim: 16,
  num_hidden_layers: 4,
  partial_rotary_factor: 0.25,
  linear_conv_kernel_dim: seen,
  linear_key_head_dim: size,
  linear_value_head_dim: size,
  linear_num_key_heads: keyHeads,
  linear_num_value_heads: valueHeads,
  full_attention_interval: 4,
  layer_types: ['linear_attention', 'linear_attention', 'linear_attention', 'full_attention'],
  tie_word_embeddings: false,
};
const expertConfig: FolderJson = {
  num_experts: 5,
  num_experts_per_tok: 2,
  moe_intermediate_size: 48,
  shared_expert_intermediate_size: 80,
  norm_topk_prob: true,
};

const usual: Keys = [
  ['attention.layer_norm_rms_epsilon', 1e-6],
  ['attention.key_length', 16],
  ['attention.value_length', 16],
];
const counts: Keys = [
  ['expert_count', 5],
  ['expert_used_count', 2],
];
const start = (more: Keys): Keys => common(...usual, ...more, ['block_count', 4]);
const stateKeys: Keys = [
  ['ssm.conv_kernel', 4],
  ['ssm.state_size', 16],
  ['ssm.group_count', 2],
  ['ssm.time_step_rank', 4],
  ['ssm.inner_size', 64],
  ['attention.recurrent_layers', [true, true, true, false]],
  ['full_attention_interval', 4],
  ['rope.dimension_count', 4],
];
const expertKeys: Keys = [
  ['expert_feed_forward_length', 48],
  ['expert_shared_feed_forward_length', 80],
];

const norms = `
  input_layernorm.weight           attn_norm.weight            64  +1
  post_attention_layernorm.weight  post_attention_norm.weight  64  +1`;
const mixture = `
  mlp.gate.weight                     ffn_gate_inp.weight        5x64
  mlp.shared_expert_gate.weight       ffn_gate_inp_shexp.weight  1x64
  mlp.shared_expert.gate_proj.weight  ffn_gate_shexp.weight      80x64
  mlp.shared_expert.up_proj.weight    ffn_up_shexp.weight        80x64
  mlp.shared_expert.down_proj.weight  ffn_down_shexp.weight      64x80
  mlp.experts.#.gate_proj.weight      ffn_gate_exps.weight       48x64  stack=5
  mlp.experts.#.up_proj.weight        ffn_up_exps.weight         48x64  stack=5
  mlp.experts.#.down_proj.weight      ffn_down_exps.weight       64x48  stack=5`;
const full = `
  self_attn.q_proj.weight  attn_q.weight       128x64
  self_attn.k_proj.weight  attn_k.weight       32x64
  self_attn.v_proj.weight  attn_v.weight       32x64
  self_attn.o_proj.weight  attn_output.weight  64x64
  self_attn.q_norm.weight  attn_q_norm.weight  16  +1
  self_attn.k_norm.weight  attn_k_norm.weight  16  +1`;
const ends = outside.replace(/(output_norm.weight {2}64)/, '$1  +1');

/** Rows of 16 each, by their numbers. */
const rows = (...numbers: number[]) => numbers.map((n) => `${16 * n}+16`).join(',');
/** Queries, keys and values of 2 groups, each with a query, a key, two values and two gates. */
const next = `
  linear_attn.in_proj_qkvz.weight  attn_qkv.weight    192x64  rows=${rows(0, 6, 1, 7, 2, 3, 8, 9)}  as=128x64
  linear_attn.in_proj_qkvz.weight  attn_gate.weight   192x64  rows=${rows(4, 5, 10, 11).replace('64+16,80+16', '64+32').replace('160+16,176+16', '160+32')}  as=64x64
  linear_attn.in_proj_ba.weight    ssm_ba.weight      8x64
  linear_attn.conv1d.weight        ssm_conv1d.weight  128x1x4  as=128x4
  linear_attn.A_log                ssm_a              4  -exp
  linear_attn.dt_bias              ssm_dt.bias        4
  linear_attn.norm.weight          ssm_norm.weight    16
  linear_attn.out_proj.weight      ssm_out.weight     64x64`;
/** Heads of values go from 0 1 2 3 to 0 2 1 3. */
const tiled = `
  linear_attn.in_proj_qkv.weight  attn_qkv.weight    128x64   rows=${rows(0, 1, 2, 3, 4, 6, 5, 7)}  as=128x64
  linear_attn.in_proj_z.weight    attn_gate.weight   64x64    rows=${rows(0, 2, 1, 3)}  as=64x64
  linear_attn.in_proj_b.weight    ssm_beta.weight    4x64     rows=0+1,2+1,1+1,3+1  as=4x64
  linear_attn.in_proj_a.weight    ssm_alpha.weight   4x64     rows=0+1,2+1,1+1,3+1  as=4x64
  linear_attn.conv1d.weight       ssm_conv1d.weight  128x1x4  rows=${rows(0, 1, 2, 3, 4, 6, 5, 7)}  as=128x4
  linear_attn.A_log               ssm_a              4        rows=0+1,2+1,1+1,3+1  as=4  -exp
  linear_attn.dt_bias             ssm_dt.bias        4        rows=0+1,2+1,1+1,3+1  as=4
  linear_attn.norm.weight         ssm_norm.weight    16
  linear_attn.out_proj.weight     ssm_out.weight     64x64    columns=16:0,2,1,3`;

const some = (linear: string) => [
  { layers: [0, 1, 2], lines: linear },
  { layers: [3], lines: full },
];

const qwen35: DecoderCase = {
  name: 'Qwen3.5',
  hugging: 'Qwen3_5ForCausalLM',
  architecture: 'qwen35',
  layers: 4,
  config: { ...linearConfig, rope_scaling: { mrope_section: [1, 1, 0], rope_type: 'default' } },
  keys: [...start([['rope.dimension_sections', [1, 1, 0, 0]]]), ...stateKeys],
  table: { prefix, outside: ends, layer: norms + gated, some: some(tiled) },
  model: model(apart),
};

const cases: readonly DecoderCase[] = [
  {
    name: 'Qwen3-Next',
    hugging: 'Qwen3NextForCausalLM',
    architecture: 'qwen3next',
    layers: 4,
    config: { ...linearConfig, ...expertConfig },
    keys: [...start(counts), ...expertKeys, ...stateKeys],
    table: { prefix, outside: ends, layer: norms + mixture, some: some(next) },
    model: { ...model(grouped), ...experts },
  },
  qwen35,
  {
    ...qwen35,
    name: 'Qwen3.5 with a layer that predicts a further token',
    layers: 5,
    config: { ...qwen35.config, num_hidden_layers: 4 },
    keys: changed(
      qwen35.keys,
      ['block_count', 5],
      ['attention.recurrent_layers', [true, true, true, false, false]],
      ['nextn_predict_layers', 1],
    ),
    table: {
      ...qwen35.table,
      outside: `${ends}
        mtp.fc.weight                     blk.4.nextn.eh_proj.weight           64x128
        mtp.pre_fc_norm_embedding.weight  blk.4.nextn.enorm.weight             64  +1
        mtp.pre_fc_norm_hidden.weight     blk.4.nextn.hnorm.weight             64  +1
        mtp.norm.weight                   blk.4.nextn.shared_head_norm.weight  64  +1
        ${(norms + gated + full).replace(/^( *)(\S+)( +)/gm, '$1mtp.layers.0.$2$3blk.4.')}`,
      layer: '',
      some: [{ layers: [0, 1, 2, 3], lines: norms + gated }, ...some(tiled)],
    },
    model: { ...model(apart), layers: 4 },
  },
  {
    name: 'Qwen3.5 with experts',
    hugging: 'Qwen3_5MoeForCausalLM',
    architecture: 'qwen35moe',
    layers: 4,
    config: {
      ...linearConfig,
      ...expertConfig,
      rope_theta: undefined,
      partial_rotary_factor: undefined,
      rope_parameters: { rope_type: 'default', rope_theta: 10000, partial_rotary_factor: 0.25, mrope_section: [1, 1] },
    },
    keys: [...start([...counts, ['rope.dimension_sections', [1, 1, 0, 0]]]), ...expertKeys, ...stateKeys],
    table: { prefix, outside: ends, layer: norms + mixture, some: some(tiled) },
    model: { ...model(apart), ...experts },
  },
];

testDecoders(cases);

testRefusals(cases, [
  ['Qwen3-Next', { norm_topk_prob: false }, /norm_topk_prob is false/, 'UNKNOWN_FORMAT'],
  ['Qwen3-Next', { mlp_only_layers: [0] }, /mlp_only_layers is \[0\]/, 'UNKNOWN_FORMAT'],
  ['Qwen3.5', { linear_num_value_heads: 3 }, /linear_num_value_heads 3 is not a multiple/, 'BAD_FILE'],
  ['Qwen3.5', { linear_value_head_dim: 8 }, /linear_key_head_dim is 16/, 'UNKNOWN_FORMAT'],
  ['Qwen3.5', { layer_types: Array(4).fill('full_attention') }, /layer_types\[0\]/, 'UNKNOWN_FORMAT'],
  ['Qwen3.5', { rope_scaling: undefined }, /mrope_section 11, 11, 10, 0 turns more than 4 elements/, 'BAD_FILE'],
  ['Qwen3.5', { rope_scaling: { mrope_section: [1, -1] } }, /mrope_section/, 'BAD_FILE'],
  ['Qwen3.5 with experts', { num_experts: 2 ** 30 }, /too few/, 'BAD_FILE'],
]);
