import { type GgufTarget, ggufTargets, type ModelFormat, type PlanOptions, safetensorsTargets } from 'scalepoint/model';

/** The visitor's choices for quantizing a model file. */
export interface ModelChoice {
  readonly target: PlanOptions['to'];
  /** Group size of int4 and int8 in safetensors. 0 means one scale for each row. */
  readonly groupSize: number;
  readonly asymmetric: boolean;
  /** Whether int4 and int8 in safetensors use the range of least squared error for each scale. */
  readonly search: boolean;
  /** Whether int8 in safetensors takes the W8A8 form, in which activations are quantized when the model runs. */
  readonly activations: boolean;
  /** Whether all GGUF tensors get the same type, without the mixture of types that llama-quantize uses. */
  readonly pure: boolean;
  /** Whether GGUF tensors that are already quantized may be quantized again. */
  readonly requantize: boolean;
  /** Names of tensors to keep unchanged. */
  readonly kept: ReadonlySet<string>;
}

/** The targets of the three presets. */
export const presets: Readonly<
  Record<'safetensors' | 'gguf', Readonly<Record<'small' | 'balanced' | 'safe', PlanOptions['to']>>>
> = {
  safetensors: { small: 'int4', balanced: 'int8', safe: 'bfloat16' },
  gguf: { small: 'Q3_K_M', balanced: 'Q4_K_M', safe: 'Q8_0' },
};

const words: Readonly<Record<string, string>> = {
  int4: '4 bits, in groups',
  int8: '8 bits, a scale for each row',
  float8e4m3fn: '8 bits, small floats and a scale for each row',
  float16: 'half the bytes of float32, small range',
  bfloat16: 'half the bytes of float32, all of its range',
  Q8_0: '8.5 bits, hardly any loss',
  Q6_K: '6.6 bits, very small loss',
  Q5_K_M: '5.7 bits, small loss',
  Q4_K_M: '4.8 bits, the usual choice',
  Q3_K_M: '3.9 bits, visible loss',
  Q2_K: '2.6 to 3 bits, large loss',
  IQ4_NL: '4.5 bits, uneven levels',
  F16: 'half precision',
  BF16: 'half the bytes, all of the range',
  F32: 'back to full precision',
};

/** The targets of a format, each with a label that describes it. */
export function targetsOf(
  format: ModelFormat,
): readonly { readonly value: PlanOptions['to']; readonly label: string }[] {
  const targets = format === 'gguf' ? ggufTargets : safetensorsTargets;
  return targets.map((value) => ({ value, label: words[value] === undefined ? value : `${value}: ${words[value]}` }));
}

/** The choices for a model that was just opened. */
export function initialChoice(format: ModelFormat): ModelChoice {
  return {
    target: presets[format === 'gguf' ? 'gguf' : 'safetensors'].balanced,
    groupSize: 128,
    asymmetric: false,
    search: false,
    activations: false,
    pure: false,
    requantize: false,
    kept: new Set(),
  };
}

/** Whether the target is an integer type of safetensors. Scheme and group size are free for those alone. */
export function makesIntegers({ target }: ModelChoice): boolean {
  return target === 'int4' || target === 'int8';
}

const escaped = (name: string) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** A regular expression that matches the names of all tensors to keep. */
function keptPattern({ kept }: ModelChoice): string | undefined {
  if (kept.size === 0) return undefined;
  return `^(${[...kept].map(escaped).join('|')})$`;
}

/** The choices as options of `planModel` and `quantizeModel`. */
export function optionsOf(format: ModelFormat, choice: ModelChoice): PlanOptions {
  const { target, groupSize, asymmetric, search, activations, pure, requantize } = choice;
  const pattern = keptPattern(choice);
  const rules = pattern === undefined ? {} : { rules: [{ match: new RegExp(pattern), keep: true as const }] };
  if (format === 'gguf') {
    return { to: target as GgufTarget, ...(pure ? { pure } : {}), ...(requantize ? { requantize } : {}), ...rules };
  }
  if (!makesIntegers(choice)) return { to: target, ...rules };
  const granularity =
    groupSize === 0 ? ({ kind: 'per-channel' } as const) : ({ kind: 'per-group', groupSize } as const);
  return {
    to: target,
    ...(target === 'int4' || groupSize !== 0 ? { granularity } : {}),
    ...(asymmetric ? { scheme: 'asymmetric' as const } : {}),
    ...(search ? { range: 'mse' as const } : {}),
    ...(activations ? { activations: 'int8-dynamic' as const } : {}),
    ...rules,
  };
}

/** Name of the output: `model.safetensors` becomes `model.int4.safetensors`. */
export function outputName(name: string, format: ModelFormat, { target }: ModelChoice): string {
  const stem = name.replace(/(\.safetensors)?\.index\.json$|\.(safetensors|gguf|npy)$/i, '');
  return `${stem}.${target}.${format === 'gguf' ? 'gguf' : 'safetensors'}`;
}

const quoted = (text: string) => (/^[\w./:=,+-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

/** The choices as a command line. */
export function commandOf(name: string, format: ModelFormat, choice: ModelChoice): string {
  const { granularity, scheme, range, activations, pure, requantize } = optionsOf(format, choice);
  const pattern = keptPattern(choice);
  return [
    'npx scalepoint quantize',
    quoted(name),
    `--to ${choice.target}`,
    granularity?.kind === 'per-group' ? `--group-size ${granularity.groupSize}` : '',
    granularity?.kind === 'per-channel' ? '--granularity per-channel' : '',
    scheme === undefined ? '' : `--scheme ${scheme}`,
    range === undefined ? '' : `--range ${String(range)}`,
    activations === undefined ? '' : `--activations ${activations}`,
    pure ? '--pure' : '',
    requantize ? '--requantize' : '',
    pattern === undefined ? '' : `--rule ${quoted(`${pattern}=keep`)}`,
  ]
    .filter((part) => part !== '')
    .join(' ');
}

/** The choices as TypeScript. */
export function codeOf(name: string, format: ModelFormat, choice: ModelChoice): string {
  const { rules, ...options } = optionsOf(format, choice);
  const pattern = keptPattern(choice);
  const lines = Object.entries({ ...options, output: outputName(name, format, choice) }).map(
    ([key, value]) => `  ${key}: ${JSON.stringify(value)},`,
  );
  if (rules !== undefined && pattern !== undefined) {
    lines.push(`  rules: [{ match: new RegExp(${JSON.stringify(pattern)}), keep: true }],`);
  }
  return [
    "import { quantizeModel } from 'scalepoint/model';",
    '',
    `await quantizeModel(${JSON.stringify(name)}, {`,
    ...lines,
    '});',
    '',
  ].join('\n');
}
