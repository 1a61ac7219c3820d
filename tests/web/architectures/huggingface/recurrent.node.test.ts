import { quantizeModel, readFloats } from 'scalepoint/model';
import { expect, it } from 'vitest';
import {
  caseOf,
  convertedDecoder,
  type DecoderCase,
  type FolderJson,
  testDecoders,
  testRefusals,
} from '../../support/decoder-cases.js';
import {
  changed,
  common,
  gated,
  heads,
  type Keys,
  namesOf,
  norms,
  outside,
  permuted,
  attention as plainAttention,
  prefix,
  usualTable,
} from '../../support/decoder-tables.js';
import { best } from '../../support/decoders/latent.js';
import {
  add,
  type Decoder,
  dot,
  joined,
  mixed,
  multiply,
  type Reader,
  relu2,
  rotaryFrequencies,
  rotate,
  scaled as scaledBy,
  sigmoid,
  silu,
  slices,
  type Vector,
} from '../../support/forward.js';
import { bytesOf, safetensors } from '../../support/models.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';

const softplus = (v: number) => Math.log1p(Math.exp(v));

/** A convolution over 4 tokens with a bias, then SiLU. */
function convolved(read: Reader, name: string, x: readonly Vector[]): Vector[] {
  const { values } = read.get(`${name}.weight`);
  const bias = read.get(`${name}.bias`).values;
  return x.map((_, t) =>
    silu(
      x[t]!.map((_v, c) => {
        let sum = bias[c]!;
        for (let k = 0; k < 4; k++) sum += values[c * 4 + k]! * (x[t - 3 + k]?.[c] ?? 0);
        return sum;
      }),
    ),
  );
}

/** Mamba: 128 channels with states of 16 elements each, and steps made of 4 numbers. Norms of these are read where they are. */
const mambaOf =
  (name: string): NonNullable<Decoder['attend']> =>
  (read, p, _layer, x) => {
    const own = `${p}${name}`;
    const norm = (part: string, one: Vector) =>
      read.has(`${own}${part}_layernorm.weight`) ? read.rms(`${own}${part}_layernorm`, one, 1e-5, 0) : one;
    const both = x.map((one) => slices(read.linear(`${own}in_proj`, one), 128));
    const inputs = convolved(
      read,
      `${own}conv1d`,
      both.map(([hidden]) => hidden!),
    );
    const logs = read.get(`${own}A_log`).values;
    const skips = read.get(`${own}D`).values;
    const states = Array.from({ length: 128 }, () => new Float64Array(16));
    return inputs.map((input, t) => {
      const parts = read.linear(`${own}x_proj`, input);
      const steps = read.linear(`${own}dt_proj`, norm('dt', parts.slice(0, 4))).map(softplus);
      const [b, c] = [norm('b', parts.slice(4, 20)), norm('c', parts.slice(20))];
      const output = input.map((v, channel) => {
        const state = states[channel]!;
        const step = steps[channel]!;
        for (let i = 0; i < 16; i++)
          state[i] = state[i]! * Math.exp(-Math.exp(logs[channel * 16 + i]!) * step) + step * b[i]! * v;
        return dot(state, c) + skips[channel]! * v;
      });
      return read.linear(`${own}out_proj`, multiply(output, silu(both[t]![1]!)));
    });
  };

/**
 * Mamba 2: 128 channels in heads, two groups, states of 16 elements.
 * @param factorOf a factor of each row of what goes in
 */
const mamba2 =
  (name: string, heads: number, factorOf: (row: number) => number = () => 1): NonNullable<Decoder['attend']> =>
  (read, p, _layer, x) => {
    const own = p + name;
    const size = 128 / heads;
    const all = x.map((one) => read.linear(`${own}in_proj`, one).map((v, row) => v * factorOf(row)));
    const inputs = convolved(
      read,
      `${own}conv1d`,
      all.map((one) => one.slice(128, 320)),
    );
    const [logs, skips, steps] = ['A_log', 'D', 'dt_bias'].map((part) => read.get(own + part).values) as [
      Float32Array,
      Float32Array,
      Float32Array,
    ];
    const weight = read.has(`${own}norm.weight`) ? read.get(`${own}norm.weight`).values : undefined;
    const states = Array.from({ length: 128 }, () => new Float64Array(16));
    return inputs.map((input, t) => {
      const groups = (from: number) => slices(input.slice(from, from + 32), 16);
      const [b, c] = [groups(128), groups(160)];
      const output = input.slice(0, 128).map((v, channel) => {
        const h = Math.floor(channel / size);
        const g = Math.floor((2 * h) / heads);
        const step = softplus(all[t]![320 + h]! + steps[h]!);
        const decay = Math.exp(-Math.exp(logs[h]!) * step);
        const state = states[channel]!;
        for (let i = 0; i < 16; i++) state[i] = state[i]! * decay + step * b[g]![i]! * v;
        return dot(state, c[g]!) + skips[h]! * v;
      });
      const gated = multiply(output, silu(all[t]!.slice(0, 128)));
      if (weight === undefined) return read.linear(`${own}out_proj`, gated);
      const normed = slices(gated, 64).map((part) => part.map((v) => v / Math.sqrt(dot(part, part) / 64 + 1e-5)));
      return read.linear(
        `${own}out_proj`,
        joined(normed).map((v, i) => v * weight[i]!),
      );
    });
  };

/** Attention whose scores have a factor. @param turn turns heads by their positions */
function attention(
  read: Reader,
  own: string,
  x: readonly Vector[],
  factor: number,
  turn: (head: Vector, position: number) => Vector = (head) => head,
): Vector[] {
  const [q, k, v] = ['q', 'k', 'v'].map((name) =>
    x.map((one, t) =>
      slices(read.linear(`${own}${name}_proj`, one), 16).map((head) => (name === 'v' ? head : turn(head, t))),
    ),
  ) as [Vector[][], Vector[][], Vector[][]];
  const all = mixed(q, k, v, (product, t, s) => (s > t ? -Infinity : product * factor));
  return all.map((one) => read.linear(`${own}o_proj`, one));
}

/** Mamba 2 in the first and third layer of Granite. */
const hybrid: NonNullable<Decoder['attend']> = (read, p, layer, x) =>
  layer === 1 ? attention(read, `${p}self_attn.`, x, 0.125) : mamba2('mamba.', 4)(read, p, layer, x);

/** Factors of Falcon-H1. */
const falcon = {
  lm_head_multiplier: 0.4,
  embedding_multiplier: 3.5,
  mlp_multipliers: [0.9, 0.3],
  key_multiplier: 0.8,
  attention_in_multiplier: 1.2,
  attention_out_multiplier: 0.7,
  ssm_in_multiplier: 1.25,
  ssm_out_multiplier: 0.6,
  ssm_multipliers: [0.9, 1.1, 0.8, 1.3, 0.5],
};
/** Rows of the gate, the channels, the inputs and the outputs of states, and the steps. */
const falconRows = [128, 128, 32, 32, 4];

/** Attention and Mamba 2 side by side. Keys have a factor, by which scores grow. */
const falconLayer: NonNullable<Decoder['attend']> = (read, p, layer, x) => {
  const times = falconRows.flatMap((rows, i) => new Array<number>(rows).fill(falcon.ssm_multipliers[i]!));
  const states = mamba2('mamba.', 4, (row) => times[row]!)(
    read,
    p,
    layer,
    x.map((one) => scaledBy(one, falcon.ssm_in_multiplier)),
  );
  const frequencies = rotaryFrequencies(1e11, 16);
  const attended = attention(
    read,
    `${p}self_attn.`,
    x.map((one) => scaledBy(one, falcon.attention_in_multiplier)),
    falcon.key_multiplier / 4,
    (head, t) => rotate(head, t, frequencies, 1),
  );
  return states.map((one, t) =>
    add(scaledBy(one, falcon.ssm_out_multiplier), scaledBy(attended[t]!, falcon.attention_out_multiplier)),
  );
};

const falconGrow: NonNullable<Decoder['grow']> = (read, p, x) => {
  const own = `${p}feed_forward.`;
  const [gate, down] = falcon.mlp_multipliers as [number, number];
  const inner = multiply(silu(scaledBy(read.linear(`${own}gate_proj`, x), gate)), read.linear(`${own}up_proj`, x));
  return scaledBy(read.linear(`${own}down_proj`, inner), down);
};

const start: Keys = common(
  ['attention.head_count_kv', undefined],
  ['rope.freq_base', undefined],
  ['attention.layer_norm_rms_epsilon', undefined],
  ['context_length', 2 ** 20],
  ['feed_forward_length', 0],
  ['attention.head_count', 0],
  ['ssm.conv_kernel', 4],
  ['ssm.inner_size', 128],
  ['ssm.state_size', 16],
);
const ends = `
  backbone.embeddings.weight  token_embd.weight   264x64
  backbone.norm_f.weight      output_norm.weight  64`;
const pure: Partial<Decoder> = {
  prefix: 'backbone.layers.',
  embedding: 'backbone.embeddings.weight',
  norms: { attention: 'norm', feedForward: undefined, final: 'backbone.norm_f' },
  // The layers have no second part.
  grow: (_read, _p, x) => x.map(() => 0),
};
const space = (own: string, heads: number) => `
  ${own}.A_log            ssm_a              ${heads}  as=${heads}x1  -exp
  ${own}.D                ssm_d              ${heads}  as=${heads}x1
  ${own}.dt_bias          ssm_dt.bias        ${heads}
  ${own}.conv1d.weight    ssm_conv1d.weight  192x1x4  as=192x4
  ${own}.conv1d.bias      ssm_conv1d.bias    192
  ${own}.in_proj.weight   ssm_in.weight      ${320 + heads}x64
  ${own}.norm.weight      ssm_norm.weight    128  as=2x64
  ${own}.out_proj.weight  ssm_out.weight     64x128`;

const graniteConfig: FolderJson = {
  layer_types: ['mamba', 'attention', 'mamba'],
  position_embedding_type: 'nope',
  mamba_expand: 2,
  mamba_d_state: 16,
  mamba_d_conv: 4,
  mamba_n_heads: 4,
  mamba_n_groups: 2,
  attention_multiplier: 0.125,
  embedding_multiplier: 12,
  residual_multiplier: 0.22,
  logits_scaling: 8,
  tie_word_embeddings: false,
};
const graniteKeys = (
  context: number,
  experts: Keys,
  heads: readonly number[],
  shared: number,
  rotates: boolean,
): Keys => [
  ...common(...experts, ['context_length', context], ['attention.head_count_kv', heads]),
  ['vocab_size', 264],
  ['rope.dimension_count', 16],
  ['attention.scale', 0.125],
  ['embedding_scale', 12],
  ['residual_scale', 0.22],
  ['logit_scale', 8],
  ['expert_shared_feed_forward_length', shared],
  ['ssm.conv_kernel', 4],
  ['ssm.state_size', 16],
  ['ssm.group_count', 2],
  ['ssm.inner_size', 128],
  ['ssm.time_step_rank', 4],
  ['rope.scaling.finetuned', rotates],
];
const halves = (half: number) => [0, 1, 2, 3, 4].map((e) => `${(2 * e + half) * 96}+96`).join(',');
const mixture = `
  block_sparse_moe.router.layer.weight   ffn_gate_inp.weight    5x64
  block_sparse_moe.input_linear.weight   ffn_gate_exps.weight   5x192x64  rows=${halves(0)}  as=5x96x64
  block_sparse_moe.input_linear.weight   ffn_up_exps.weight     5x192x64  rows=${halves(1)}  as=5x96x64
  block_sparse_moe.output_linear.weight  ffn_down_exps.weight   5x64x96
  shared_mlp.input_linear.weight         ffn_gate_shexp.weight  160x64  rows=0+80   as=80x64
  shared_mlp.input_linear.weight         ffn_up_shexp.weight    160x64  rows=80+80  as=80x64
  shared_mlp.output_linear.weight        ffn_down_shexp.weight  64x80`;
const dense = `
  shared_mlp.input_linear.weight   ffn_gate.weight  192x64  rows=0+96   as=96x64
  shared_mlp.input_linear.weight   ffn_up.weight    192x64  rows=96+96  as=96x64
  shared_mlp.output_linear.weight  ffn_down.weight  64x96`;
const scaled: Partial<Decoder> = {
  headName: 'lm_head.weight',
  embeddingFactor: 12,
  residualFactor: 0.22,
  logitFactor: 1 / 8,
  fusedName: 'shared_mlp.input_linear',
  fusedDown: 'shared_mlp.output_linear',
};
/** Falcon-H1. @param norm the norm of the outputs of states, if it has one */
function falconCase(name: string, norm: string, config: FolderJson): DecoderCase {
  return {
    name,
    hugging: 'FalconH1ForCausalLM',
    architecture: 'falcon-h1',
    config: {
      ...falcon,
      ...config,
      head_dim: 16,
      rope_theta: 1e11,
      mamba_d_ssm: 128,
      mamba_n_heads: 4,
      mamba_d_head: 32,
      mamba_n_groups: 2,
      mamba_d_state: 16,
      mamba_d_conv: 4,
      tie_word_embeddings: false,
    },
    keys: common(
      ['ssm.conv_kernel', 4],
      ['ssm.inner_size', 128],
      ['ssm.state_size', 16],
      ['ssm.time_step_rank', 4],
      ['ssm.group_count', 2],
      ['vocab_size', 264],
      ...heads,
      ['rope.freq_base', 1e11],
    ),
    table: {
      prefix,
      outside: `
        model.embed_tokens.weight     token_embd.weight   264x64  times=3.5
        model.final_layernorm.weight  output_norm.weight  64
        lm_head.weight                output.weight       264x64  times=0.4`,
      layer: `
        input_layernorm.weight         attn_norm.weight    64
        pre_ff_layernorm.weight        ffn_norm            64
        self_attn.q_proj.weight        attn_q.weight       64x64   times=1.2
        self_attn.k_proj.weight        attn_k.weight       32x64   times=0.8  byrows=32*1.2
        self_attn.v_proj.weight        attn_v.weight       32x64   times=1.2
        self_attn.o_proj.weight        attn_output.weight  64x64   times=0.7
        mamba.A_log                    ssm_a               4  as=4x1  -exp
        mamba.D                        ssm_d               4  as=4x1
        mamba.dt_bias                  ssm_dt.bias         4
        mamba.conv1d.weight            ssm_conv1d.weight   192x1x4  as=192x4
        mamba.conv1d.bias              ssm_conv1d.bias     192
        mamba.in_proj.weight           ssm_in.weight       324x64  times=1.25  byrows=128*0.9,128*1.1,32*0.8,32*1.3,4*0.5
        ${norm}
        mamba.out_proj.weight          ssm_out.weight      64x128  times=0.6
        feed_forward.gate_proj.weight  ffn_gate.weight     96x64   times=0.9
        feed_forward.up_proj.weight    ffn_up.weight       96x64
        feed_forward.down_proj.weight  ffn_down.weight     64x96   times=0.3`,
    },
    model: {
      headName: 'lm_head.weight',
      embeddingFactor: falcon.embedding_multiplier,
      logitFactor: falcon.lm_head_multiplier,
      norms: { feedForward: 'pre_ff_layernorm', final: 'model.final_layernorm' },
      attend: falconLayer,
      grow: falconGrow,
    },
  };
}

const some = [
  { layers: [0, 2], lines: space('mamba', 4) },
  { layers: [1], lines: permuted },
];

/** Nemotron-H: one part a layer. */
const nemotronLayer: NonNullable<Decoder['attend']> = (read, p, layer, x) => {
  const own = `${p}mixer.`;
  if (read.has(`${own}in_proj.weight`)) return mamba2('mixer.', 4)(read, p, layer, x);
  if (read.has(`${own}q_proj.weight`)) return attention(read, own, x, 1 / 4);
  const dense = (name: string, one: Vector) =>
    read.linear(`${own}${name}down_proj`, relu2(read.linear(`${own}${name}up_proj`, one)));
  if (!read.has(`${own}gate.weight`)) return x.map((one) => dense('', one));
  return x.map((one) => {
    const shares = [...read.linear(`${own}gate`, one)].map(sigmoid);
    const bias = read.get(`${own}gate.e_score_correction_bias`).values;
    const chosen = best(
      shares.map((v, e) => v + bias[e]!),
      // In Puzzle, a token uses more of the smaller experts.
      read.get(`${own}experts.0.up_proj.weight`).shape[0] === 48 ? 2 : 3,
    );
    const sum = chosen.reduce((all, e) => all + shares[e]!, 0);
    const isLatent = read.has(`${own}fc1_latent_proj.weight`);
    const input = isLatent ? read.linear(`${own}fc1_latent_proj`, one) : one;
    const routed = chosen.map((e) => scaledBy(dense(`experts.${e}.`, input), (shares[e]! * 1.5) / sum)).reduce(add);
    return add(isLatent ? read.linear(`${own}fc2_latent_proj`, routed) : routed, dense('shared_experts.', one));
  });
};
const nemotronConfig: FolderJson = {
  head_dim: 16,
  layer_norm_epsilon: 1e-5,
  ssm_state_size: 16,
  mamba_num_heads: 4,
  mamba_head_dim: 32,
  n_groups: 2,
  conv_kernel: 4,
  tie_word_embeddings: false,
};
const nemotronKeys = (layers: number, keyHeads: readonly number[], rows: readonly number[], more: Keys = []): Keys => [
  ['block_count', layers],
  ['context_length', 2 ** 20],
  ['embedding_length', 64],
  ['feed_forward_length', rows],
  ['attention.head_count', 4],
  ['attention.head_count_kv', keyHeads],
  ['attention.layer_norm_rms_epsilon', 1e-5],
  ['attention.layer_norm_epsilon', 1e-5],
  ['vocab_size', 264],
  ['rope.dimension_count', 16],
  ['ssm.conv_kernel', 4],
  ['ssm.state_size', 16],
  ['ssm.group_count', 2],
  ['ssm.inner_size', 128],
  ['ssm.time_step_rank', 4],
  ['rope.scaling.finetuned', false],
  ['attention.key_length', 16],
  ['attention.value_length', 16],
  ...more,
];
const nemotronTable = (spaces: readonly number[], attended: number, rest: { layers: number[]; lines: string }) => ({
  prefix: 'backbone.layers.',
  outside: `${ends}
    lm_head.weight  output.weight  264x64`,
  layer: 'norm.weight  attn_norm.weight  64',
  some: [
    { layers: spaces, lines: space('mixer', 4) },
    { layers: [attended], lines: permuted.replaceAll('self_attn.', 'mixer.') },
    rest,
  ],
});
const nemotronMixture = (width: number, rows = 48) => `
  mixer.gate.weight                      ffn_gate_inp.weight    5x64
  mixer.gate.e_score_correction_bias     exp_probs_b.bias       5
  mixer.experts.#.up_proj.weight         ffn_up_exps.weight     ${rows}x${width}  stack=5
  mixer.experts.#.down_proj.weight       ffn_down_exps.weight   ${width}x${rows}  stack=5
  mixer.shared_experts.up_proj.weight    ffn_up_shexp.weight    80x64
  mixer.shared_experts.down_proj.weight  ffn_down_shexp.weight  64x80`;
const nemotronLatent = `
  mixer.fc1_latent_proj.weight  ffn_latent_down.weight  32x64
  mixer.fc2_latent_proj.weight  ffn_latent_up.weight    64x32`;
const nemotronMoe = (name: string, latent: number | undefined): DecoderCase => ({
  name,
  hugging: 'NemotronHForCausalLM',
  architecture: 'nemotron_h_moe',
  layers: 4,
  config: {
    ...nemotronConfig,
    layers_block_type: ['mamba', 'moe', 'attention', 'moe'],
    n_routed_experts: 5,
    num_experts_per_tok: 2,
    n_shared_experts: 1,
    moe_intermediate_size: 48,
    moe_shared_expert_intermediate_size: 80,
    moe_latent_size: latent,
    routed_scaling_factor: 1.5,
    norm_topk_prob: true,
  },
  keys: nemotronKeys(
    4,
    [0, 0, 2, 0],
    [0, 48, 0, 48],
    [
      ['expert_count', 5],
      ['expert_used_count', 2],
      ['expert_feed_forward_length', 48],
      ['expert_shared_feed_forward_length', 80],
      ['expert_shared_count', 1],
      ['expert_weights_norm', true],
      ['expert_weights_scale', 1.5],
      ['expert_group_count', 1],
      ['expert_group_used_count', 1],
      ...(latent === undefined ? [] : ([['moe_latent_size', latent]] as const)),
    ],
  ),
  table: nemotronTable([0], 2, {
    layers: [1, 3],
    lines: latent === undefined ? nemotronMixture(64) : nemotronMixture(latent) + nemotronLatent,
  }),
  model: { ...pure, headName: 'lm_head.weight', attend: nemotronLayer },
});

/** Experts of 48 elements, of which a token uses 2, and of 32, of which it uses 3. */
const latentMoe = nemotronMoe('Nemotron-H with experts of fewer elements', 32);
const plainMoe = nemotronMoe('Nemotron-H with experts', undefined);
const inNext = (lines: string, from: string) =>
  lines.replace(/^ *(\S+)( +)/gm, (_, name: string, gap: string) => `${from}.${name}${gap}blk.4.`);
/** With a layer that predicts a further token: attention, and experts behind it. */
const nextMoe: DecoderCase = {
  ...plainMoe,
  name: 'Nemotron-H with a layer that predicts a further token',
  config: { ...plainMoe.config, num_nextn_predict_layers: 1 },
  keys: [
    ...changed(
      plainMoe.keys,
      ['block_count', 5],
      ['feed_forward_length', [0, 48, 0, 48, 48]],
      ['attention.head_count_kv', [0, 0, 2, 0, 2]],
    ),
    ['nextn_predict_layers', 1],
  ],
  table: {
    ...plainMoe.table,
    outside: `${plainMoe.table.outside}
      mtp.layers.0.enorm.weight            blk.4.nextn.enorm.weight             64
      mtp.layers.0.hnorm.weight            blk.4.nextn.hnorm.weight             64
      mtp.layers.0.eh_proj.weight          blk.4.nextn.eh_proj.weight           64x128
      mtp.layers.0.norm.weight             blk.4.attn_norm.weight               64
      ${inNext(permuted.replaceAll('self_attn.', 'mixer.').trim(), 'mtp.layers.0')}
      mtp.layers.1.norm.weight             blk.4.post_attention_norm.weight     64
      ${inNext(nemotronMixture(64).trim(), 'mtp.layers.1')}
      mtp.layers.1.final_layernorm.weight  blk.4.nextn.shared_head_norm.weight  64`,
  },
};
const puzzleBlocks = [
  { block_type: 'mamba' },
  { block_type: 'moe', moe_intermediate_size: 48, num_experts_per_tok: 2 },
  { block_type: 'attention' },
  { block_type: 'moe', moe_intermediate_size: 32, num_experts_per_tok: 3 },
];
const puzzle: DecoderCase = {
  ...latentMoe,
  name: 'Nemotron-H Puzzle',
  hugging: 'NemotronHPuzzleForCausalLM',
  config: {
    ...latentMoe.config,
    layers_block_type: undefined,
    num_experts_per_tok: undefined,
    block_configs: puzzleBlocks,
  },
  keys: changed(
    latentMoe.keys,
    ['feed_forward_length', [0, 48, 0, 32]],
    ['expert_used_count', [0, 2, 0, 3]],
    ['expert_feed_forward_length', [0, 48, 0, 32]],
  ),
  table: {
    ...latentMoe.table,
    some: [
      ...latentMoe.table.some!.slice(0, 2),
      { layers: [1], lines: nemotronMixture(32) + nemotronLatent },
      { layers: [3], lines: nemotronMixture(32, 32) + nemotronLatent },
    ],
  },
};

const cases: readonly DecoderCase[] = [
  {
    name: 'Mamba',
    hugging: 'MambaForCausalLM',
    architecture: 'mamba',
    config: { intermediate_size: 128, state_size: 16, conv_kernel: 4, time_step_rank: 4, layer_norm_epsilon: 1e-5 },
    keys: [...start, ['ssm.time_step_rank', 4], ['attention.layer_norm_rms_epsilon', 1e-5], ['ssm.dt_b_c_rms', false]],
    table: {
      prefix: 'backbone.layers.',
      outside: ends,
      layer: `
        norm.weight            attn_norm.weight   64
        mixer.A_log            ssm_a              128x16  -exp
        mixer.D                ssm_d              128
        mixer.conv1d.weight    ssm_conv1d.weight  128x1x4  as=128x4
        mixer.conv1d.bias      ssm_conv1d.bias    128
        mixer.in_proj.weight   ssm_in.weight      256x64
        mixer.x_proj.weight    ssm_x.weight       36x128
        mixer.dt_proj.weight   ssm_dt.weight      128x4
        mixer.dt_proj.bias     ssm_dt.bias        128
        mixer.out_proj.weight  ssm_out.weight     64x128`,
    },
    model: { ...pure, attend: mambaOf('mixer.') },
  },
  {
    name: 'Mamba 2',
    hugging: 'Mamba2ForCausalLM',
    architecture: 'mamba2',
    config: {
      state_size: 16,
      conv_kernel: 4,
      head_dim: 32,
      num_heads: 4,
      n_groups: 2,
      pad_vocab_size_multiple: 8,
      layer_norm_epsilon: 1e-5,
    },
    keys: [...start, ['ssm.time_step_rank', 4], ['ssm.group_count', 2], ['attention.layer_norm_rms_epsilon', 1e-5]],
    table: {
      prefix: 'backbone.layers.',
      outside: ends,
      layer: `
        norm.weight  attn_norm.weight  64
        ${space('mixer', 4)}`,
    },
    model: { ...pure, attend: mamba2('mixer.', 4) },
  },
  falconCase('Falcon-H1', '', { mamba_rms_norm: false }),
  falconCase('Falcon-H1 with norms of states', 'mamba.norm.weight  ssm_norm.weight  128  as=2x64', {
    mamba_rms_norm: true,
    mamba_norm_before_gate: false,
  }),
  {
    name: 'Granite with Mamba 2 and experts',
    hugging: 'GraniteMoeHybridForCausalLM',
    architecture: 'granitehybrid',
    config: { ...graniteConfig, num_local_experts: 5, num_experts_per_tok: 2, shared_intermediate_size: 80 },
    keys: graniteKeys(
      2 ** 20,
      [
        ['expert_count', 5],
        ['expert_used_count', 2],
      ],
      [0, 2, 0],
      80,
      false,
    ),
    table: usualTable(norms + mixture, { some }),
    model: {
      ...scaled,
      attend: hybrid,
      usedExperts: 2,
      experts: { router: 'block_sparse_moe.router.layer', expert: () => ['', '', ''] },
      stacked: ['block_sparse_moe.input_linear.weight', 'block_sparse_moe.output_linear.weight'],
      sharedFused: ['shared_mlp.input_linear', 'shared_mlp.output_linear'],
    },
  },
  {
    name: 'Granite with Mamba 2',
    hugging: 'GraniteMoeHybridForCausalLM',
    architecture: 'granitehybrid',
    config: { ...graniteConfig, num_local_experts: 0, num_experts_per_tok: 0, shared_intermediate_size: 96 },
    keys: graniteKeys(
      2 ** 20,
      [
        ['expert_count', 0],
        ['expert_used_count', 0],
      ],
      [0, 2, 0],
      96,
      false,
    ),
    table: usualTable(norms + dense, { some }),
    model: { ...scaled, attend: hybrid },
  },
  {
    name: 'Granite 4 with attention alone',
    hugging: 'GraniteMoeHybridForCausalLM',
    architecture: 'granite',
    config: {
      ...graniteConfig,
      layer_types: ['attention', 'attention', 'attention'],
      position_embedding_type: 'rope',
      num_local_experts: 0,
      num_experts_per_tok: 0,
      shared_intermediate_size: 96,
    },
    keys: graniteKeys(
      128,
      [
        ['expert_count', 0],
        ['expert_used_count', 0],
      ],
      [2, 2, 2],
      96,
      true,
    ),
    table: usualTable(norms + permuted + dense),
    model: { ...scaled, scale: 64 },
  },
  {
    name: 'Nemotron-H',
    hugging: 'NemotronHForCausalLM',
    architecture: 'nemotron_h',
    layers: 4,
    config: { ...nemotronConfig, hybrid_override_pattern: 'M*-M' },
    keys: nemotronKeys(4, [0, 2, 0, 0], [0, 0, 96, 0]),
    table: nemotronTable([0, 3], 1, {
      layers: [2],
      lines: `
        mixer.up_proj.weight    ffn_up.weight    96x64
        mixer.down_proj.weight  ffn_down.weight  64x96`,
    }),
    model: { ...pure, headName: 'lm_head.weight', attend: nemotronLayer },
  },
  plainMoe,
  nextMoe,
  latentMoe,
  puzzle,
  {
    name: 'Jamba',
    hugging: 'JambaForCausalLM',
    architecture: 'jamba',
    config: {
      ...{ attn_layer_offset: 1, attn_layer_period: 8, expert_layer_offset: 1, expert_layer_period: 2 },
      ...{ num_experts: 5, num_experts_per_tok: 2, mamba_d_state: 16, mamba_d_conv: 4, mamba_dt_rank: 4 },
      tie_word_embeddings: false,
    },
    keys: [
      ...common(['rope.freq_base', undefined], ['attention.head_count_kv', [0, 2, 0]]),
      ['expert_count', 5],
      ['expert_used_count', 2],
      ['ssm.conv_kernel', 4],
      ['ssm.inner_size', 128],
      ['ssm.state_size', 16],
      ['ssm.time_step_rank', 4],
    ],
    table: {
      prefix,
      outside: outside.replace('model.norm.weight ', 'model.final_layernorm.weight '),
      layer: `
        input_layernorm.weight   attn_norm.weight  64
        pre_ff_layernorm.weight  ffn_norm.weight   64`,
      some: [
        {
          layers: [0, 2],
          lines: `
            mamba.A_log                ssm_a               128x16  -exp
            mamba.D                    ssm_d               128
            mamba.conv1d.weight        ssm_conv1d.weight   128x1x4  as=128x4
            mamba.conv1d.bias          ssm_conv1d.bias     128
            mamba.in_proj.weight       ssm_in.weight       256x64
            mamba.x_proj.weight        ssm_x.weight        36x128
            mamba.dt_proj.weight       ssm_dt.weight       128x4
            mamba.dt_proj.bias         ssm_dt.bias         128
            mamba.dt_layernorm.weight  ssm_dt_norm.weight  4
            mamba.b_layernorm.weight   ssm_b_norm.weight   16
            mamba.c_layernorm.weight   ssm_c_norm.weight   16
            mamba.out_proj.weight      ssm_out.weight      64x128
            ${gated.replaceAll('mlp.', 'feed_forward.')}`,
        },
        {
          layers: [1],
          lines: `${plainAttention}
            feed_forward.router.weight               ffn_gate_inp.weight   5x64
            feed_forward.experts.#.gate_proj.weight  ffn_gate_exps.weight  96x64  stack=5
            feed_forward.experts.#.up_proj.weight    ffn_up_exps.weight    96x64  stack=5
            feed_forward.experts.#.down_proj.weight  ffn_down_exps.weight  64x96  stack=5`,
        },
      ],
    },
    model: {
      headName: 'lm_head.weight',
      norms: { feedForward: 'pre_ff_layernorm', final: 'model.final_layernorm' },
      attend: (read, p, layer, x) =>
        layer === 1 ? attention(read, `${p}self_attn.`, x, 1 / 4) : mambaOf('mamba.')(read, p, layer, x),
      mlp: { gate: 'feed_forward.gate_proj', up: 'feed_forward.up_proj', down: 'feed_forward.down_proj' },
      usedExperts: 2,
      experts: { router: 'feed_forward.router', expert: (e) => namesOf(`feed_forward.experts.${e}`) },
      shares: { of: 'all' },
    },
  },
];

testDecoders(cases);

testRefusals(cases, [
  ['Nemotron-H', { hybrid_override_pattern: 'M*XM' }, /layer 2 is "X"/],
  ['Nemotron-H', { hybrid_override_pattern: undefined }, /hybrid_override_pattern or layers_block_type/, 'BAD_FILE'],
  ['Nemotron-H', { hybrid_override_pattern: 'M*-E' }, /layers are dense and have experts/],
  [
    'Nemotron-H Puzzle',
    { block_configs: [{ ...puzzleBlocks[0], moe_intermediate_size: 48 }, ...puzzleBlocks.slice(1)] },
    /block_configs\[0\].moe_intermediate_size is 48/,
    'BAD_FILE',
  ],
  ['Nemotron-H Puzzle', { block_configs: [1] }, /block_configs has to have objects/, 'BAD_FILE'],
  ['Nemotron-H', { attention_bias: true }, /attention_bias is true/],
  ['Jamba', { mamba_expand: 3 }, /mamba_expand is 3/],
  ['Jamba', { num_experts_per_tok: 6 }, /num_experts_per_tok 6/, 'BAD_FILE'],
  ['Mamba', { intermediate_size: 96 }, /the channels have 96 elements/, 'UNKNOWN_FORMAT'],
  ['Mamba', { pad_vocab_size_multiple: 16 }, /vocab_size 264 is not a multiple of 16/, 'UNKNOWN_FORMAT'],
  ['Mamba', { use_bias: true }, /use_bias is true/, 'UNKNOWN_FORMAT'],
  ['Mamba 2', { head_dim: 48 }, /128 channels are not a multiple of head_dim 48/, 'BAD_FILE'],
  ['Mamba 2', { n_groups: 3 }, /not divided evenly/, 'BAD_FILE'],
  ['Falcon-H1', { mamba_n_groups: 3 }, /not divided evenly/, 'BAD_FILE'],
  ['Falcon-H1', { mamba_d_head: 16 }, /mamba_d_head is 16/],
  ['Falcon-H1', { mlp_multipliers: [1] }, /mlp_multipliers has to be an array of 2 numbers/, 'BAD_FILE'],
  ['Falcon-H1', { ssm_multipliers: [1, 1, 1, 1, '1'] }, /ssm_multipliers has to be an array of 5/, 'BAD_FILE'],
  ['Falcon-H1', { projectors_bias: true }, /projectors_bias is true/],
  ['Falcon-H1', { tie_word_embeddings: true }, /one tensor for both/],
  ['Falcon-H1 with norms of states', { mamba_norm_before_gate: undefined }, /mamba_norm_before_gate is true/],
  ['Granite with Mamba 2', { position_embedding_type: 'rope' }, /position_embedding_type is "rope"/, 'UNKNOWN_FORMAT'],
  ['Granite with Mamba 2', { shared_intermediate_size: 80 }, /shared_intermediate_size is 80/, 'UNKNOWN_FORMAT'],
  ['Granite with Mamba 2', { layer_types: ['mamba', 'other', 'mamba'] }, /layer_types\[1\]/, 'UNKNOWN_FORMAT'],
]);

// The weight of the states' inputs is larger than a tile, and the rows of its second tile have factors of their own.
it('multiplies rows by their own factors in every tile', async () => {
  const { config, table, hugging } = cases.find(({ name }) => name === 'Falcon-H1')!;
  const groups = 2 * 4096;
  const [channels, rows] = [128 + 2 * groups, 2 * 128 + 2 * groups + 4];
  const layer = table.layer.replace(/324x64/, `${rows}x64`).replaceAll(/\b192(?=x|$)/gm, String(channels));
  const name = 'model.layers.0.mamba.in_proj.weight';
  const weights = weightsOfTable({ ...table, layer }, 1);
  const folder = [
    new File(
      [
        safetensors(
          Object.fromEntries(
            [...weights].map(([key, { shape, values }]) => [key, { dtype: 'F32', shape, data: values }]),
          ),
        ),
      ],
      'model.safetensors',
    ),
    new File(
      [JSON.stringify(decoderConfig(hugging, { ...config, mamba_d_state: 4096, num_hidden_layers: 1 }))],
      'config.json',
    ),
    new File([JSON.stringify(plainTokenizer())], 'tokenizer.json'),
  ];
  const file = await (await quantizeModel(folder, { to: 'F32', workers: 0 })).bytes();
  const { data } = await readFloats(file, 'blk.0.ssm_in.weight', { workers: 0 });
  const parts = [128, 128, groups, groups, 4].flatMap((n, i) => new Array<number>(n).fill(falcon.ssm_multipliers[i]!));
  const factors = Float32Array.from(parts);
  const expected = weights.get(name)!.values.map((v, i) => Math.fround(v * 1.25) * factors[Math.floor(i / 64)]!);
  expect(data.length).toBeGreaterThan(1 << 20);
  expect(Buffer.compare(bytesOf(data), bytesOf(expected))).toBe(0);
});

it('names layers that predict further tokens and are left out', async () => {
  const one = caseOf(cases, 'Nemotron-H');
  const weights = weightsOfTable(one.table, 4);
  const more = { shape: [64], values: new Float32Array(64) };
  const { notes, tensors } = await convertedDecoder(one, new Map(weights).set('mtp.layers.0.enorm.weight', more));
  expect(tensors.map(({ name }) => name)).toEqual(
    (await convertedDecoder(one, weights)).tensors.map(({ name }) => name),
  );
  expect(notes).toMatchObject([{ kind: 'nextLayersLeftOut', count: 1 }]);
  expect(notes[0]?.text).toMatch(/^layers that predict further tokens are left out \(1 tensor\)/);
});
