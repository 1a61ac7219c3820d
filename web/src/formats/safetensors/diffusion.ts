/**
 * Architectures of diffusion models: their characteristic tensors, and the tensors that stay floats.
 * Reference: github.com/city96/ComfyUI-GGUF, tools/convert.py at 4dfc025 (branch auto_convert) and tools/lcpp.patch at 795e451.
 */

/** A diffusion architecture. */
export interface DiffusionArchitecture {
  /** `general.architecture`. */
  readonly name: string;
  /** Sets of tensor names. A model has this architecture if it has all names of one set. */
  readonly keys: readonly (readonly string[])[];
  /** Tensors of the same model in the layout of diffusers. */
  readonly diffusers?: readonly string[];
  /** Parts of the names of tensors that are stored as F32. */
  readonly precise?: readonly string[];
  /** Parts of the names of tensors that are left out. */
  readonly dropped?: readonly string[];
  /** Parts of the names of tensors that are never quantized. */
  readonly kept: readonly string[];
  /** Whole names of tensors that are never quantized. */
  readonly keptNames?: readonly string[];
  /** True if tensors with short rows are stored in rows of 256, with their shape in the metadata. */
  readonly reshapes?: boolean;
  /**
   * Ends of the names of weights whose row length ComfyUI reads to detect the model.
   * Reference: github.com/Comfy-Org/ComfyUI at 0b61ce5b, comfy/model_detection.py.
   */
  readonly measured?: readonly string[];
}

const stableDiffusion = {
  kept: ['class_embedding.', 'time_embedding.', 'add_embedding.', 'time_embed.', 'label_emb.', 'conv_in.', 'conv_out.'],
  keptNames: ['input_blocks.0.0.weight', 'out.2.weight'],
  reshapes: true,
  measured: ['.transformer_blocks.0.attn2.to_k.weight'],
};

/** Known architectures, in the order of detection: in the layout of diffusers, Hunyuan Video has the names of Flux, too. */
export const diffusionArchitectures: readonly DiffusionArchitecture[] = [
  {
    name: 'hyvid',
    keys: [['double_blocks.0.img_attn_proj.weight', 'txt_in.individual_token_refiner.blocks.1.self_attn_qkv.weight']],
    diffusers: ['context_embedder.token_refiner.refiner_blocks.0.attn.to_q.weight'],
    kept: ['txt_in.', 'img_in.', 'time_in.', 'vector_in.', 'guidance_in.', 'final_layer.'],
  },
  {
    name: 'flux',
    keys: [['double_blocks.0.img_attn.proj.weight']],
    diffusers: ['single_transformer_blocks.0.attn.norm_k.weight'],
    kept: [
      'txt_in.',
      'img_in.',
      'time_in.',
      'vector_in.',
      'guidance_in.',
      'final_layer.',
      'single_stream_modulation.',
      'double_stream_modulation_',
    ],
  },
  {
    name: 'sd3',
    keys: [['joint_blocks.0.x_block.attn.qkv.weight']],
    diffusers: ['transformer_blocks.0.ff_context.net.0.proj.weight', 'transformer_blocks.0.attn.add_q_proj.weight'],
    kept: ['final_layer.', 'time_text_embed.', 'context_embedder.', 't_embedder.', 'y_embedder.', 'x_embedder.'],
    keptNames: ['proj_out.weight', 'pos_embed'],
  },
  {
    name: 'aura',
    keys: [['double_layers.3.modX.1.weight']],
    diffusers: ['joint_transformer_blocks.3.ff_context.out_projection.weight'],
    kept: ['t_embedder.', 'init_x_linear.'],
    keptNames: [
      'modF.1.weight',
      'cond_seq_linear.weight',
      'final_linear.weight',
      'positional_encoding',
      'register_tokens',
    ],
  },
  {
    name: 'hidream',
    keys: [['caption_projection.0.linear.weight', 'double_stream_blocks.0.block.ff_i.shared_experts.w3.weight']],
    precise: ['.ff_i.gate.weight', 'img_emb.emb_pos'],
    kept: ['p_embedder.', 't_embedder.', 'x_embedder.', 'final_layer.', '.ff_i.gate.weight', 'caption_projection.'],
  },
  {
    name: 'cosmos',
    keys: [['blocks.0.mlp.layer1.weight', 'blocks.0.adaln_modulation_cross_attn.1.weight']],
    precise: ['pos_embedder'],
    dropped: ['_extra_state', 'accum_'],
    kept: ['p_embedder.', 't_embedder.', 't_embedding_norm.', 'x_embedder.', 'pos_embedder.', 'final_layer.'],
  },
  {
    name: 'qwen_image',
    keys: [
      [
        'time_text_embed.timestep_embedder.linear_2.weight',
        'transformer_blocks.0.attn.norm_added_q.weight',
        'transformer_blocks.0.img_mlp.net.0.proj.weight',
      ],
    ],
    kept: ['img_in.', 'txt_in.', 'time_text_embed.', 'proj_out.', 'norm_out.'],
  },
  {
    name: 'ltxv',
    keys: [
      [
        'adaln_single.emb.timestep_embedder.linear_2.weight',
        'transformer_blocks.27.scale_shift_table',
        'caption_projection.linear_2.weight',
      ],
    ],
    precise: ['scale_shift_table'],
    measured: ['transformer_blocks.0.attn2.to_k.weight'],
    kept: ['adaln_single.', 'caption_projection.', 'patchify_proj.', 'proj_out.', 'scale_shift_table'],
  },
  {
    name: 'wan',
    keys: [['blocks.0.self_attn.norm_q.weight', 'text_embedding.2.weight', 'head.modulation']],
    diffusers: ['condition_embedder.time_proj.weight'],
    precise: [
      '.modulation',
      '.encoder.padding_tokens',
      'trainable_cond_mask',
      'casual_audio_encoder.weights',
      'casual_audio_encoder.encoder.conv',
    ],
    kept: [
      'modulation.',
      'patch_embedding.',
      'text_embedding.',
      'time_projection.',
      'time_embedding.',
      'img_emb.',
      'head.',
      'cond_encoder.',
      'frame_packer.',
      'audio_injector.',
      'casual_audio_encoder.',
      'trainable_cond_mask.',
    ],
  },
  {
    name: 'sdxl',
    keys: [
      ['label_emb.0.0.weight'],
      [
        'input_blocks.3.0.op.weight',
        'input_blocks.6.0.op.weight',
        'output_blocks.2.2.conv.weight',
        'output_blocks.5.2.conv.weight',
      ],
      ['down_blocks.0.downsamplers.0.conv.weight', 'add_embedding.linear_1.weight'],
    ],
    ...stableDiffusion,
  },
  {
    name: 'sd1',
    keys: [
      [
        'input_blocks.3.0.op.weight',
        'input_blocks.6.0.op.weight',
        'input_blocks.9.0.op.weight',
        'output_blocks.2.1.conv.weight',
        'output_blocks.5.2.conv.weight',
        'output_blocks.8.2.conv.weight',
      ],
      ['down_blocks.0.downsamplers.0.conv.weight'],
    ],
    ...stableDiffusion,
  },
  {
    name: 'lumina2',
    keys: [['cap_embedder.1.weight', 'context_refiner.0.attention.qkv.weight']],
    diffusers: ['noise_refiner.0.attention.norm_k.weight'],
    precise: ['x_pad_token', 'cap_pad_token'],
    kept: [
      't_embedder.',
      'x_embedder.',
      'final_layer.',
      'cap_embedder.',
      'context_refiner.',
      'noise_refiner.',
      'x_pad_token.',
      'cap_pad_token.',
    ],
  },
];

/** The start of the names of a diffusion model's tensors in a checkpoint that may bundle it with others; empty for a model alone. */
export function diffusionPrefix(tensors: readonly { readonly name: string }[]): string {
  return (
    ['model.diffusion_model.', 'model.'].find((known) => tensors.some(({ name }) => name.startsWith(known))) ??
    (tensors.every(({ name }) => name.startsWith('net.')) ? 'net.' : '')
  );
}

/** Architecture of a diffusion model with tensors of these names, without a prefix; undefined for other models. */
export function architectureWith(names: ReadonlySet<string>): DiffusionArchitecture | undefined {
  return diffusionArchitectures.find(({ keys }) => keys.some((set) => set.every((key) => names.has(key))));
}

/** The architecture whose tensors have these names in the layout of diffusers. */
export function diffusersArchitecture(names: ReadonlySet<string>): string | undefined {
  return diffusionArchitectures.find(({ diffusers }) => diffusers?.some((key) => names.has(key)))?.name;
}

/** True for a weight that stays a float for its architecture. @param name without a prefix */
export function staysFloat(
  { kept, keptNames = [] }: Pick<DiffusionArchitecture, 'kept' | 'keptNames'>,
  name: string,
): boolean {
  return kept.some((part) => name.includes(part)) || keptNames.includes(name);
}
