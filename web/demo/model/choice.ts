import {
  type FormatInfo,
  type ModelFormat,
  modelFormats,
  type PlanOptions,
  presetTarget,
  resultName,
} from 'scalepoint/model';

/** The visitor's choices for quantizing a model file. */
export interface ModelChoice {
  readonly target: PlanOptions['to'];
  /** Group size of int4 and int8 in safetensors. 0 means one scale for each row; 'default' leaves it to the package. */
  readonly groupSize: number | 'default';
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

/** What the package says about a format. */
export function infoOf(format: ModelFormat): FormatInfo {
  const info = modelFormats().find(({ name }) => name === format);
  if (info === undefined) throw new Error(`there is no format ${format}`);
  return info;
}

/** The targets of a format, each with a label that describes it. */
export function targetsOf(
  format: ModelFormat,
): readonly { readonly value: PlanOptions['to']; readonly label: string }[] {
  return infoOf(format).targets.map(({ name, about }) => {
    return { value: name as PlanOptions['to'], label: about === undefined ? name : `${name}: ${about}` };
  });
}

/** Whether an option means something for the chosen target. */
export function takes(format: ModelFormat, { target }: ModelChoice, option: keyof PlanOptions): boolean {
  return (
    infoOf(format)
      .targets.find(({ name }) => name === target)
      ?.options.includes(option) ?? false
  );
}

/** The choices for a model that was just opened. */
export function initialChoice(format: ModelFormat): ModelChoice {
  return {
    target: presetTarget(format, 'balanced'),
    groupSize: 'default',
    asymmetric: false,
    search: false,
    activations: false,
    pure: false,
    requantize: false,
    kept: new Set(),
  };
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
  const granularityOf = (size: number) =>
    size === 0 ? ({ kind: 'per-channel' } as const) : ({ kind: 'per-group', groupSize: size } as const);
  const chosen: PlanOptions = {
    to: target,
    ...(groupSize === 'default' ? {} : { granularity: granularityOf(groupSize) }),
    ...(asymmetric ? { scheme: 'asymmetric' as const } : {}),
    ...(search ? { range: 'mse' as const } : {}),
    ...(activations ? { activations: 'int8-dynamic' as const } : {}),
    ...(pure ? { pure } : {}),
    ...(requantize ? { requantize } : {}),
  };
  const names = Object.keys(chosen) as (keyof PlanOptions)[];
  const taken = names.filter((name) => name === 'to' || takes(format, choice, name));
  return { ...(Object.fromEntries(taken.map((name) => [name, chosen[name]])) as unknown as PlanOptions), ...rules };
}

/** Name of the output: `model.safetensors` becomes `model.int4.safetensors`. */
export function outputName(name: string, format: ModelFormat, { target }: ModelChoice): string {
  return resultName(name.replace(/\.index\.json$/i, ''), { to: target, format: infoOf(format).result });
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
