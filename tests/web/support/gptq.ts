// Settings of layers as the loaders of GPTQ and AWQ find them. Written from their sources; it shares no code with web/src.
// Sources: github.com/AutoGPTQ/AutoGPTQ at c69ed3e2, auto_gptq/quantization/config.py (BaseQuantizeConfig); ModelCloud/GPTQModel at f4c327a1,
// gptqmodel/quantization/config.py (QuantizeConfig, dynamic_get) and utils/model.py (make_quant); casper-hansen/AutoAWQ at 024d960c,
// awq/models/_config.py.
type Json = Readonly<Record<string, unknown>>;

/** Settings that a loader finds for a linear layer. */
export interface LayerSettings {
  readonly words: 'gptq' | 'awq';
  readonly bits: number;
  readonly groupSize: number;
  /** Added to zero points when they are read. */
  readonly zeroAdd: number;
  /** True if all zero points are the middle code. */
  readonly symmetric: boolean;
}

function need(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(`a loader refuses the quantization_config: ${what}`);
}

/** The settings of a module by a `quantization_config`; undefined for a layer that keeps its floats. */
export function layerSettings(quantization: Json, module: string): LayerSettings | undefined {
  const { quant_method: method, bits, group_size: groupSize } = quantization;
  need(typeof bits === 'number' && typeof groupSize === 'number' && groupSize > 0, 'bits and group_size');
  if (method === 'awq') {
    // WQLinear_GEMM has 4 bits and zero points. Names of layers without codes are looked for in those of all layers.
    const { version, zero_point: hasZeros, modules_to_not_convert: kept } = quantization;
    need(bits === 4 && String(version).toLowerCase() === 'gemm' && hasZeros === true, 'the version');
    need(kept === null || Array.isArray(kept), 'modules_to_not_convert');
    if (module.endsWith('lm_head') || (kept as string[] | null)?.some((name) => module.includes(name)))
      return undefined;
    return { words: 'awq', bits, groupSize, zeroAdd: 0, symmetric: false };
  }
  need(method === 'gptq', 'quant_method');
  const {
    checkpoint_format: format,
    pack_dtype: packed,
    desc_act: order,
    sym,
    lm_head: head,
    dynamic = {},
  } = quantization;
  need(format === 'gptq' || format === 'gptq_v2', 'checkpoint_format');
  need(packed === 'int32' && typeof order === 'boolean' && typeof sym === 'boolean' && head === false, 'its keys');
  if (module.endsWith('lm_head')) return undefined;
  let own: Json = {};
  for (const [pattern, overrides] of Object.entries(dynamic as Json)) {
    // re.match looks at the start of a name. The first pattern that matches counts.
    const isKept = pattern.startsWith('-:');
    if (!new RegExp(`^(?:${pattern.replace(/^[-+]:/, '')})`).test(module)) continue;
    if (isKept) return undefined;
    own = overrides as Json;
    break;
  }
  const { bits: ownBits = bits, group_size: ownGroup = groupSize } = own as { bits?: number; group_size?: number };
  need([2, 3, 4, 8].includes(ownBits), `${ownBits} bits`);
  return { words: 'gptq', bits: ownBits, groupSize: ownGroup, zeroAdd: format === 'gptq' ? 1 : 0, symmetric: sym };
}

/** Fields of BaseQuantizeConfig that all releases of AutoGPTQ have; early ones pass all keys of the file to its constructor. */
const autoGptqFields = ['bits', 'group_size', 'damp_percent', 'desc_act', 'sym', 'true_sequential'];

/** quantize_config.json as AutoGPTQ reads it. `dynamic`, which GPTQModel added, is refused by early releases. */
export function autoGptqSettings(file: Json): { readonly bits: number; readonly groupSize: number } {
  for (const key of Object.keys(file)) need(autoGptqFields.includes(key), `unexpected keyword argument ${key}`);
  const {
    bits = 4,
    group_size: groupSize = -1,
    damp_percent: damp = 0.01,
    desc_act: ordered = true,
    sym = true,
  } = file;
  need([2, 3, 4, 8].includes(bits as number), 'bits');
  need(groupSize === -1 || (groupSize as number) > 0, 'group_size');
  need(0 < (damp as number) && (damp as number) < 1, 'damp_percent');
  // Codes are in the order of the model's columns, and zero points are the middle code.
  need(ordered === false && sym === true, 'desc_act and sym');
  return { bits: bits as number, groupSize: groupSize as number };
}

/** quantize_config.json, or the quant_config.json of AWQ, as GPTQModel reads it: other names of keys, and GPTQ unless a method is named. */
export function gptqModelSettings(file: Json): Json {
  const names: Readonly<Record<string, string>> = { w_bit: 'bits', q_group_size: 'group_size' };
  const read = Object.fromEntries(Object.entries(file).map(([key, value]) => [names[key] ?? key, value]));
  const usual = { quant_method: 'gptq', checkpoint_format: 'gptq', pack_dtype: 'int32', lm_head: false };
  return { ...usual, modules_to_not_convert: null, ...read };
}

/** Fields of AutoAWQ's AwqConfig, which takes the keys of quant_config.json as arguments. The last came with version 0.2. */
const autoAwqFields = ['quant_method', 'zero_point', 'q_group_size', 'w_bit', 'version', 'modules_to_not_convert'];

/** quant_config.json as AutoAWQ reads it. */
export function autoAwqSettings(file: Json): { readonly bits: number; readonly groupSize: number } {
  for (const key of Object.keys(file)) need(autoAwqFields.includes(key), `unexpected keyword argument ${key}`);
  const { zero_point: hasZeros = true, q_group_size: groupSize = 128, w_bit: bits = 4, version = 'GEMM' } = file;
  need(hasZeros === true && version === 'GEMM', 'the version');
  return { bits: bits as number, groupSize: groupSize as number };
}
