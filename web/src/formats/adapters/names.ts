/**
 * Names of the tensors in adapters (LoRA), as several tools spell them, and the weights that they stand for.
 * Reference: github.com/huggingface/peft at 000b5847, src/peft/utils/save_and_load.py; huggingface/diffusers at ed6847a1,
 * src/diffusers/loaders/lora_conversion_utils.py (that of XLabs at 019c4962); Comfy-Org/ComfyUI at 6f98b150, comfy/weight_adapter/lora.py.
 */

/**
 * A matrix of an adapter, the number that scales their product, or the magnitudes of rows (DoRA). `embeddingA` and `embeddingB` are the transposes of
 * down and up.
 */
export type AdapterPart = 'down' | 'up' | 'middle' | 'magnitude' | 'alpha' | 'embeddingA' | 'embeddingB';

/** The meaning of a tensor's name. */
export interface AdapterName {
  /** Name of the layer as the file spells it. */
  readonly module: string;
  readonly part: AdapterPart;
  /** True for the names of PEFT, whose alpha is in adapter_config.json. */
  readonly isPeft: boolean;
}

/** Ends of names. PEFT leaves the name of the adapter out, other tools write `default`. */
const ends: readonly (readonly [end: RegExp, part: AdapterPart, isPeft: boolean])[] = [
  [/\.lora_A(\.default)?(\.weight)?$/, 'down', true],
  [/\.lora_B(\.default)?(\.weight)?$/, 'up', true],
  [/\.lora_embedding_A(\.default)?$/, 'embeddingA', true],
  [/\.lora_embedding_B(\.default)?$/, 'embeddingB', true],
  [/\.lora_magnitude_vector(\.default)?(\.weight)?$/, 'magnitude', true],
  [/\.lora_down\.weight$/, 'down', false],
  [/\.lora_up\.weight$/, 'up', false],
  [/\.lora_mid\.weight$/, 'middle', false],
  // XLabs, which trains processors of FLUX.
  [/(?<=\.processor\.(?:qkv|proj)_lora[12]?)\.down\.weight$/, 'down', false],
  [/(?<=\.processor\.(?:qkv|proj)_lora[12]?)\.up\.weight$/, 'up', false],
  [/[._]lora\.down\.weight$/, 'down', false],
  [/[._]lora\.up\.weight$/, 'up', false],
  [/\.lora_linear_layer\.down\.weight$/, 'down', false],
  [/\.lora_linear_layer\.up\.weight$/, 'up', false],
  [/\.alpha$/, 'alpha', false],
];

/** Kinds of adapters that are not merged, by the names of their tensors. */
const strangers: readonly (readonly [name: RegExp, kind: string])[] = [
  [/\.dora_scale\b/, 'DoRA with scales'],
  [/\.hada_[wt]\d/, 'LoHa'],
  [/\.lokr_[wt]\d/, 'LoKr'],
  [/\.(oft|boft)_|\.oft_blocks$/, 'OFT'],
  [/\.(vera_lambda|ia3_l|fourierft_spectrum|randlora_lambda)/, 'another method of PEFT'],
  [/\.[ab][12]\.weight$/, 'GLoRA'],
  [/\.(diff|diff_b|set_weight|w_norm|b_norm)$/, 'differences of whole weights'],
  [/\.reshape_weight$/, 'LoRA that changes the shapes of weights'],
  [/\.lora_(B|up)(\.default)?\.bias$/, 'LoRA with biases'],
];

/** The meaning of a tensor's name; the kind of its adapter if that is not merged; undefined for other tensors. */
export function adapterMeaning(name: string): AdapterName | string | undefined {
  const kind = strangers.find(([pattern]) => pattern.test(name))?.[1];
  if (kind !== undefined) return kind;
  for (const [end, part, isPeft] of ends) {
    const found = end.exec(name);
    if (found !== null && found.index > 0) return { module: name.slice(0, found.index), part, isPeft };
  }
  return undefined;
}

/** The model of a pipeline that a prefix names, and marks of it in the names of checkpoints that hold several models. */
interface Component {
  readonly prefix: RegExp;
  readonly marks: readonly string[];
}

const components: readonly Component[] = [
  { prefix: /^lora_te1_|^text_encoder\./, marks: ['clip_l', 'embedders.0', 'cond_stage_model', 'text_encoder.'] },
  { prefix: /^lora_te2_|^text_encoder_2\./, marks: ['clip_g', 'embedders.1', 'text_encoder_2.'] },
  { prefix: /^lora_te3_|^text_encoder_3\./, marks: ['t5xxl', 'text_encoder_3.'] },
  { prefix: /^lora_te_/, marks: ['clip_l', 'cond_stage_model', 'text_encoder.'] },
  { prefix: /^(lora_unet_|lora_transformer_|lycoris_)/, marks: ['diffusion_model'] },
  { prefix: /^(unet|transformer|diffusion_model|model\.diffusion_model|prior)\./, marks: ['diffusion_model'] },
];

/** Prefixes that wrappers of a model add to the names of its layers, or leave out. */
const wrappers = ['base_model.model.', 'model.', 'transformer.', 'language_model.'];

/** Layers of FLUX behind the processors that XLabs trains: of the original, but for the first rows of a joined one. */
const processors: Readonly<Record<string, readonly string[]>> = {
  'double_blocks qkv_lora1': ['img_attn.qkv'],
  'double_blocks qkv_lora2': ['txt_attn.qkv'],
  'double_blocks proj_lora1': ['img_attn.proj'],
  'double_blocks proj_lora2': ['txt_attn.proj'],
  'single_blocks qkv_lora': ['attn.to_q', 'attn.to_k', 'attn.to_v'],
  'single_blocks proj_lora': ['linear2'],
};

/** The layers whose rows an adapter has together, after each other, if it is one of XLabs. */
export function processorLayers(module: string): readonly string[] | undefined {
  const [, list = '', number, processor = ''] =
    /(?:^|\.)((?:double|single)_blocks)\.(\d+)\.processor\.(\w+)$/.exec(module) ?? [];
  const key = `${list} ${processor}`;
  if (!Object.hasOwn(processors, key)) return undefined;
  return processors[key]?.map((layer) =>
    layer.startsWith('attn.') ? `single_transformer_blocks.${number}.${layer}` : `${list}.${number}.${layer}`,
  );
}

/** Layers whose processors, in old files of diffusers, have the names of the layers behind `processor`. */
function withoutProcessor(module: string): string {
  if (!module.includes('.processor.')) return module;
  return module.replace('.processor.', '.').replace(/\.to_out$/, '.to_out.0');
}

/** Names for lookups: tools of kohya write underscores for dots. */
const underscored = (name: string) => name.replaceAll('.', '_');

/** Names that a layer may have in its model: without prefixes of the model, and of wrappers. */
export function innerNames(module: string): readonly string[] {
  const component = components.find(({ prefix }) => prefix.test(module));
  const names = [withoutProcessor(component === undefined ? module : module.replace(component.prefix, ''))];
  for (const wrapper of wrappers) {
    const last = names.at(-1) as string;
    if (last.startsWith(wrapper)) names.push(last.slice(wrapper.length));
  }
  return names;
}

/** Ends of a name that are looked up. Names of real layers have some ten parts. */
const mostEnds = 64;

/** Adds a name to those of an end. Names come once for each end that they have. */
function addTo(ends: Map<string, string[]>, end: string, name: string): void {
  const known = ends.get(end);
  if (known === undefined) ends.set(end, [name]);
  else if (known.at(-1) !== name) known.push(name);
}

/** The weights of a model by the names of their layers. */
export class LayerNames {
  readonly #exact = new Map<string, string>();
  /** Weights by each end of their layer's name that begins behind a dot, as it is and in underscores. */
  readonly #ends = new Map<string, string[]>();
  readonly #underscored = new Map<string, string[]>();

  /** @param names of all weights */
  constructor(names: readonly string[]) {
    for (const name of names) {
      const layer = name.endsWith('.weight') ? name.slice(0, -'.weight'.length) : name;
      // A layer may be a parameter of its own; then its `.weight` goes first.
      if (layer === name && this.#exact.has(layer)) continue;
      this.#exact.set(layer, name);
      const key = underscored(layer);
      for (let at = 0, i = 0; i < mostEnds; at = layer.indexOf('.', at) + 1, i++) {
        if (i > 0 && at === 0) break;
        addTo(this.#ends, layer.slice(at), name);
        addTo(this.#underscored, key.slice(at), name);
      }
    }
  }

  /** The weights that a layer of an adapter may stand for: one if the name is clear. */
  find(module: string): readonly string[] {
    const component = components.find(({ prefix }) => prefix.test(module));
    const bare = component === undefined ? module : module.replace(component.prefix, '');
    const names = [module, bare].map(withoutProcessor);
    for (const name of names) {
      const exact = this.#exact.get(name) ?? this.#withoutWrapper(name);
      if (exact !== undefined) return [exact];
    }
    const own = withoutProcessor(bare);
    const hasDots = own.includes('.');
    const layer = (name: string) => (name.endsWith('.weight') ? name.slice(0, -'.weight'.length) : name);
    const isMarked = (one: Component | undefined, name: string) =>
      one?.marks.some((mark) => name.includes(mark)) === true;
    // Dots say where a name begins. Text encoders of one checkpoint may have the same names.
    const found = ((hasDots ? this.#ends.get(own) : this.#underscored.get(own)) ?? []).filter(
      (name) => component === undefined || isMarked(component, name) || !components.some((one) => isMarked(one, name)),
    );
    if (found.length < 2) return found;
    const whole = found.filter((name) => underscored(layer(name)) === underscored(own));
    if (whole.length === 1) return whole;
    const marked = found.filter((name) => isMarked(component, name));
    return marked.length > 0 ? marked : found;
  }

  #withoutWrapper(module: string): string | undefined {
    let rest = module;
    for (const wrapper of wrappers) {
      if (!rest.startsWith(wrapper)) continue;
      rest = rest.slice(wrapper.length);
      const found = this.#exact.get(rest);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

/** Layers of a text encoder in OpenCLIP's names, which checkpoints of SDXL and Stable Diffusion 2 have; queries, keys and values are one weight. */
const openClip: Readonly<Record<string, readonly [weight: string, index?: number]>> = {
  self_attn_q_proj: ['attn.in_proj_weight', 0],
  self_attn_k_proj: ['attn.in_proj_weight', 1],
  self_attn_v_proj: ['attn.in_proj_weight', 2],
  self_attn_out_proj: ['attn.out_proj.weight'],
  mlp_fc1: ['mlp.c_fc.weight'],
  mlp_fc2: ['mlp.c_proj.weight'],
};

/**
 * The place of a layer of a text encoder in a checkpoint with one text encoder of OpenCLIP; undefined for others.
 * Reference: huggingface/diffusers at ed6847a1, src/diffusers/loaders/single_file_utils.py (convert_open_clip_checkpoint).
 */
export function openClipPlace(
  module: string,
  has: (name: string) => boolean,
): { readonly weight: string; readonly part?: { readonly index: number; readonly count: number } } | undefined {
  const [, block, layer = ''] =
    /^(?:lora_te2?_|text_encoder(?:_2)?\.)text_model[._]encoder[._]layers[._](\d+)[._](.+)$/.exec(module) ?? [];
  const key = underscored(layer);
  if (block === undefined || !Object.hasOwn(openClip, key)) return undefined;
  const [end, index] = openClip[key] as readonly [string, number?];
  const weights = ['conditioner.embedders.0.model.', 'conditioner.embedders.1.model.', 'cond_stage_model.model.']
    .map((prefix) => `${prefix}transformer.resblocks.${block}.${end}`)
    .filter(has);
  const [weight] = weights;
  if (weight === undefined || weights.length > 1) return undefined;
  return index === undefined ? { weight } : { weight, part: { index, count: 3 } };
}
