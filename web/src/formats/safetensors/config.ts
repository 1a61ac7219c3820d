/** config.json: the file whose `quantization_config` describes the codes of a model for loaders. */
import { ScalepointError, typeError } from '../../core/errors.js';
import { ofType } from '../../core/option-problem.js';
import { quoted } from '../files/bytes.js';
import { whyNoJson } from '../files/json.js';
import type { Sidecar } from '../options.js';
import { nameBeside } from '../shards.js';

/** @throws TypeError if `config` is not an object */
export function checkConfig(config: unknown): void {
  if (typeof config === 'object' && config !== null && !Array.isArray(config)) return;
  throw typeError('config', ofType('object of a config.json'), config);
}

/** The method by which a config.json says that its model is quantized; undefined if it does not name one. */
export function methodIn(config: Readonly<Record<string, unknown>>): unknown {
  const method = (config.quantization_config as { quant_method?: unknown } | null | undefined)?.quant_method;
  return method === undefined && 'quantization' in config ? 'mlx' : method;
}

/**
 * A model's config.json with the `quantization_config` as its last key, replacing one whose weights were decoded. The argument is not
 * changed.
 * @param also further keys
 * @param decoded methods of the weights that were decoded, besides compressed-tensors
 * @throws TypeError if `config` is not an object; ScalepointError `BAD_FILE` if it describes a model quantized by another method
 */
export function mergeConfig(
  config: unknown,
  quantizationConfig: Readonly<Record<string, unknown>>,
  also: Readonly<Record<string, unknown>> = {},
  decoded: readonly string[] = [],
): Record<string, unknown> {
  checkConfig(config);
  const { quantization_config: before, ...rest } = config as Record<string, unknown>;
  const method = methodIn(config as Record<string, unknown>);
  const isReplaced = method === 'compressed-tensors' || decoded.includes(method as string);
  if (before !== undefined && before !== null && !isReplaced) {
    const by = typeof method === 'string' ? `by ${quoted(method)}` : 'by a method that it does not name';
    throw new ScalepointError('BAD_FILE', `config: the model is quantized already, ${by}`);
  }
  if (method === 'mlx') delete rest.quantization;
  return { ...rest, ...also, quantization_config: quantizationConfig };
}

function printConfig(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** A JSON text with other numbers. Skips strings by hand, because a long one would exceed the stack of a regular expression. */
function withNumbers(text: string, change: (number: string) => string): string {
  let result = '';
  for (let from = 0; ; ) {
    const begin = text.indexOf('"', from);
    const between = text.slice(from, begin < 0 ? text.length : begin);
    result += between.replace(/-?\d[\d.eE+-]*/g, change);
    if (begin < 0) return result;
    let end = begin;
    for (let backslashes = 1; backslashes % 2 === 1; ) {
      end = text.indexOf('"', end + 1);
      for (backslashes = 0; text[end - 1 - backslashes] === '\\'; ) backslashes++;
    }
    from = end + 1;
    result += text.slice(begin, from);
  }
}

/**
 * Reads a config.json. Numbers become strings, printed in their original spelling: Python distinguishes 1.0 from 1, and its integers can
 * exceed JavaScript's.
 */
function parseConfig(text: string): ReturnType<Sidecar['parse']> {
  // Prefix of strings that stand for numbers, random so that a file cannot contain it.
  const mark = `number ${crypto.randomUUID()} `;
  let value: unknown;
  try {
    JSON.parse(text);
    value = JSON.parse(withNumbers(text, (number) => `"${mark}${number}"`));
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', `it is not JSON: ${whyNoJson(text) ?? 'nested too deeply'}`, { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ScalepointError('BAD_FILE', 'expected a JSON object');
  }
  const pattern = new RegExp(`"${mark}([^"]*)"`, 'g');
  return {
    value: value as Record<string, unknown>,
    print: (merged) => printConfig(merged).replace(pattern, '$1'),
  };
}

/** config.json beside a safetensors file. */
export const configSidecar: Sidecar = {
  planned: 'quantizationConfig',
  entry: 'quantization_config',
  about:
    'Loaders of codes need a quantization_config. It is written beside OUT: config.json beside model.safetensors, ' +
    'X.config.json beside X.safetensors.',
  usualName: 'config.json',
  merge: mergeConfig,
  without(config) {
    const { quantization_config: before, ...rest } = config as Record<string, unknown>;
    if (methodIn(config as Record<string, unknown>) === 'mlx') delete rest.quantization;
    return before === undefined ? undefined : rest;
  },
  fits: (types) => types.some((type) => /^([IU](8|16|32)|F4|F[68]_\w+)$/.test(type)),
  nameFor: (output) => nameBeside(output, 'config.json'),
  parse: parseConfig,
  print: printConfig,
};

/**
 * A file beside a safetensors file with the settings of its codes alone, which older loaders read in place of config.json.
 * @param planned the name of its option, and the member of a plan
 */
export function settingsSidecar(planned: string, usualName: string, about?: string): Sidecar {
  return {
    planned,
    entry: usualName.replace('.json', ''),
    ...(about && { about }),
    isWhole: true,
    usualName,
    merge: (_before, value) => value,
    // Both spellings of the number of bits, so that a file of another kind stays.
    without: (content) => ('bits' in (content as object) || 'w_bit' in (content as object) ? {} : undefined),
    fits: configSidecar.fits,
    nameFor: (output) => nameBeside(output, usualName),
    parse: parseConfig,
    print: printConfig,
  };
}
