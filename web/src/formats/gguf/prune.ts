/**
 * Leaves out layers, like --prune-layers of llama-quantize; later ones move up.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp at 007dbbf.
 */
import { type Note, noteOf } from '../../core/note.js';
import type { GgufPair, GgufTensor } from './contents.js';
import type { GgufHeader } from './header.js';
import { u32Pair } from './pairs.js';

/** A tensor of the result, and its source in the input. */
interface Renamed {
  readonly tensor: GgufTensor;
  readonly source: GgufTensor;
}

const pattern = /blk\.(\d+)\./;

/** Number of layers listed in a note. */
const mostListed = 5;

/**
 * Leaves layers out. Returns the tensors in order, and the new number of layers for the metadata; undefined if it is the same.
 * @param sorted the tensors in the order of the result
 */
export function pruned(
  sorted: readonly GgufTensor[],
  layers: readonly number[] = [],
): { readonly tensors: readonly Renamed[]; readonly layers: number | undefined; readonly notes: readonly Note[] } {
  if (layers.length === 0)
    return { tensors: sorted.map((tensor) => ({ tensor, source: tensor })), layers: undefined, notes: [] };
  // Give layers new numbers, in the order of the result.
  const left = new Set(layers);
  const first = layers.reduce((least, layer) => Math.min(least, layer), Number.POSITIVE_INFINITY);
  const numbers = new Map<number, number | undefined>();
  let count = 0;
  const tensors = sorted.flatMap((source): Renamed[] => {
    const [whole, digits] = pattern.exec(source.name) ?? [];
    if (whole === undefined) return [{ tensor: source, source }];
    const old = Number(digits);
    if (!numbers.has(old)) {
      const number = left.has(old) ? undefined : old < first ? old : count;
      if (number !== undefined) count = number + 1;
      numbers.set(old, number);
    }
    const layer = numbers.get(old);
    if (layer === undefined) return [];
    return [{ tensor: { ...source, name: source.name.replace(whole, () => `blk.${layer}.`) }, source }];
  });
  // Note layers that the model lacks.
  const missing = [...left].filter((layer) => !numbers.has(layer)).sort((a, b) => a - b);
  const more = missing.length - mostListed;
  const list = missing.slice(0, mostListed).join(', ') + (more > 0 ? ` and ${more} more` : '');
  const what = missing.length === 1 ? `there is no layer ${list}` : `there are no layers ${list}`;
  const last = [...numbers.keys()].reduce((most, layer) => Math.max(most, layer), -1);
  const has = last < 0 ? 'no layers' : last === 0 ? 'layer 0 alone' : `layers 0 to ${last}`;
  const note = noteOf(
    'missingLayers',
    { layers: missing, lastLayer: last },
    `${what} to leave out: the model has ${has}`,
  );
  return { tensors, layers: count, notes: missing.length === 0 ? [] : [note] };
}

/** The pairs with the number of remaining layers. */
export function withLayers(
  pairs: readonly GgufPair[],
  { metadata }: Pick<GgufHeader, 'metadata'>,
  layers: number | undefined,
): readonly GgufPair[] {
  if (layers === undefined) return pairs;
  const own = `${metadata['general.architecture']}.block_count`;
  return [...pairs.filter(({ key }) => key !== own), u32Pair(own, layers)];
}
