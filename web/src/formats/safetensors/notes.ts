/** What a user should know about a safetensors result: who reads it, and what would take along what was left. */
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import type { LogicalTensor, PlannedTensor } from '../format.js';
import { linearOnly } from './keep.js';
import { defaultGroupSizes, isPlain, type SafetensorsOptions } from './options.js';

/** A weight that is kept although something would take it along. */
export interface Left {
  readonly source: LogicalTensor;
  /** Size as floats. */
  readonly bytes: number;
  /** It is of no linear layer; its rows are no multiple of the groups; it is float64. */
  readonly why: 'not linear' | 'rows' | 'F64';
  readonly groupSize?: number;
}

const weights = (n: number) => `${n} ${n === 1 ? 'weight' : 'weights'}`;

const stay = (n: number) => `${weights(n)} ${n === 1 ? 'stays' : 'stay'}`;

const them = (n: number) => (n === 1 ? 'it' : 'them');

/** What takes along rows that groups do not divide. */
function otherGroups(rows: readonly Left[]): string {
  const most = Math.max(...rows.map(({ groupSize }) => groupSize ?? 0));
  const size = defaultGroupSizes.find(
    (known) => known < most && rows.every(({ source: { shape } }) => (shape[1] as number) % known === 0),
  );
  return size === undefined ? "granularity: { kind: 'per-channel' }" : `groupSize: ${size}`;
}

/** Lengths of rows in a list, the first few. */
function lengthsOf(rows: readonly Left[]): string {
  const lengths = [...new Set(rows.map(({ source: { shape } }) => shape[1] as number))];
  return lengths.length > 3 ? `${lengths.slice(0, 3).join(', ')} and others` : lengths.join(', ');
}

/** What would take along the weights that were left. */
function notesOnLeft(converted: readonly PlannedTensor[], left: readonly Left[]): string[] {
  const notes: string[] = [];
  const of = (why: Left['why']) => left.filter((weight) => weight.why === why);
  const [rows, doubles, others] = [of('rows'), of('F64'), of('not linear')];
  if (rows.length > 0) {
    const sizes = [...new Set(rows.map(({ groupSize }) => groupSize))].join(' or ');
    const what = `rows of ${lengthsOf(rows)} cannot be cut in groups of ${sizes}`;
    notes.push(`${stay(rows.length)}: ${what}; ${otherGroups(rows)} takes ${them(rows.length)} along`);
  }
  if (doubles.length > 0) {
    notes.push(`${stay(doubles.length)}, as float64; a rule takes ${them(doubles.length)} along`);
  }
  // A few small ones among many others, such as the first layer of a vision transformer, are as they should be.
  const bytesOf = (list: readonly { readonly bytes: number }[]) => list.reduce((sum, { bytes }) => sum + bytes, 0);
  const convertedBytes = () =>
    bytesOf(converted.map(({ source: { parts } }) => ({ bytes: bytesOf(parts.map(({ tensor }) => tensor)) })));
  if (others.length > 0 && bytesOf(others) > convertedBytes()) {
    const what = `loaders decode linear layers only; include: 'all' takes ${them(others.length)} along`;
    notes.push(`${stay(others.length)}: ${what}, for programs that read the file with Scalepoint`);
  }
  return notes;
}

/** Who reads the codes, where that is not what one would expect. */
function notesOnReaders(
  tensors: readonly PlannedTensor[],
  converted: readonly PlannedTensor[],
  choices: SafetensorsOptions,
): string[] {
  const notes: string[] = [];
  const notLinear = linearOnly(tensors.map(({ source }) => source));
  const special = converted.filter(({ source: { name, shape } }) => notLinear(name, shape) !== undefined);
  if (special.length > 0) {
    const become = special.length === 1 ? 'becomes' : 'become';
    const who = 'Scalepoint reads them, vLLM, transformers and llama.cpp do not';
    notes.push(`${weights(special.length)} of layers that are not linear ${become} codes: ${who}`);
  }
  const forms = new Set(converted.map(({ form }) => form as CompressedForm));
  if ([...forms].some(({ type }) => type === 'int') && isPlain(choices) && choices.activations === undefined) {
    // The converter ignores zero points of codes that are not packed.
    const who = choices.scheme === 'asymmetric' ? 'transformers' : "transformers and llama.cpp's converter";
    notes.push(`plain int8 codes are read by ${who}; vLLM wants them packed, as by default`);
  }
  const rows = converted.filter(({ source, form }) => {
    const { packed, groupSize } = form as CompressedForm;
    return packed && groupSize === undefined && source.shape.length === 2;
  });
  if (rows.length > 0) {
    notes.push(
      "packed codes with one scale a row are read by vLLM and transformers; llama.cpp's converter wants groups",
    );
  }
  return notes;
}

/** Notes about a result. */
export function notesOf(
  tensors: readonly PlannedTensor[],
  left: readonly Left[],
  choices: SafetensorsOptions,
): readonly string[] {
  const converted = tensors.filter(({ form }) => form.codec === 'compressed-tensors');
  return [...notesOnReaders(tensors, converted, choices), ...notesOnLeft(converted, left)];
}
