/** Merges adapters into the tensors of a model, which are then read together. */

import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { type CastType, castTypeOf } from '../codecs/cast.js';
import { type Form, tileElements } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import type { LowRankForm, LowRankPair } from '../codecs/low-rank.js';
import { isLowRankType, type LowRankType, lowRankRoles } from '../codecs/low-rank.js';
import { quoted, quotedNames } from '../files/bytes.js';
import type { CodedFloats, LogicalTensor, SourceTensor } from '../format.js';
import { joinedAgain, type LayerPlace, layerPlaces, storedRows, takenApart } from '../safetensors/diffusers.js';
import type { Adapter, AdapterLayer } from './adapter.js';
import { innerNames, LayerNames, openClipPlace, processorLayers } from './names.js';

/** Layers without a weight that a message lists. */
const mostListed = 10;

/**
 * Most bytes of a weight's matrices as floats, of all adapters together, that a tile reads besides its own elements. They bound the memory of
 * workers. A rank of 512 in rows of 16384 takes 32 MiB.
 */
const mostMatrixBytes = 2 ** 25;

const shapeText = ({ dtype, shape }: Pick<SourceTensor, 'dtype' | 'shape'>) => `${dtype} [${shape.join(', ')}]`;

/** A layer of an adapter, with the adapter. */
interface Addition {
  readonly adapter: Adapter;
  readonly layer: AdapterLayer;
}

/** The form of a weight before adapters are added; undefined unless it has values. */
function baseOf(
  { form, parts: [first] }: LogicalTensor,
  codedFloats: CodedFloats,
): { readonly form: Form; readonly floats: CastType } | undefined {
  const coded = codedFloats(form);
  if (coded !== undefined) return { form, floats: coded };
  const { dtype } = (first as LogicalTensor['parts'][number]).tensor;
  const floats = Object.hasOwn(castTypeOf, dtype) ? castTypeOf[dtype] : undefined;
  return floats && { form: { codec: 'cast', to: dtype } as Form, floats };
}

/** The matrices of a layer for a weight. @throws ScalepointError `BAD_FILE` */
function pairOf({ adapter, layer }: Addition, weight: LogicalTensor, rows: number, columns: number): LowRankPair {
  const { down, up, middle, turned, alpha, root, module } = layer;
  const fail = (message: string, tensor: SourceTensor): never => {
    throw new ScalepointError('BAD_FILE', `adapter ${quoted(adapter.name)}: ${message}`, {
      tensor: tensor.name,
      byteOffset: tensor.byteOffset,
    });
  };
  for (const tensor of middle === undefined ? [up, down] : [up, down, middle]) {
    if (!isLowRankType(tensor.dtype))
      fail(`the tensor ${quoted(tensor.name)} is ${tensor.dtype}, which is not a float type that can be read`, tensor);
  }
  // Bring the matrices of convolutions to two dimensions.
  const [upFirst = 0, ...upRest] = up.shape;
  const [downFirst = 0, ...downRest] = down.shape;
  const [upSecond, downSecond] = [elementsOf(upRest), elementsOf(downRest)];
  const types = { up: up.dtype as LowRankType, down: down.dtype as LowRankType };
  const scale = { strength: adapter.strength, alpha, root };
  const misfit = (): never => {
    const shapes = [up, down, ...(middle === undefined ? [] : [middle])].map(shapeText).join(', ');
    return fail(
      `the matrices of the layer ${quoted(module)} (${shapes}) do not fit the weight ${quoted(weight.name)} [${weight.shape.join(', ')}]`,
      up,
    );
  };
  if (turned) {
    const rank = upFirst;
    const fits = upSecond === rows && downFirst === columns && downSecond === rank;
    if (!fits || rank === 0 || middle !== undefined) misfit();
    return { rank, ...types, turned, ...scale };
  }
  const rank = upSecond;
  if (upFirst !== rows || rank === 0) misfit();
  if (middle === undefined) {
    if (downFirst !== rank || downSecond !== columns) misfit();
    return { rank, ...types, turned, ...scale };
  }
  const [a, inner = 0, ...kernels] = middle.shape;
  const kernel = elementsOf(kernels);
  const fits = a === rank && inner === rank && downFirst === inner && downSecond * kernel === columns;
  if (!fits || kernel === 0 || kernels.join() !== weight.shape.slice(2).join()) misfit();
  return { rank, ...types, turned, middle: { type: middle.dtype as LowRankType, inner, kernel }, ...scale };
}

/** Equal forms as one object, so that tensors of one shape share their tiles. */
class Forms {
  readonly #known = new Map<string, LowRankForm>();

  shared(form: LowRankForm): LowRankForm {
    const key = JSON.stringify(form);
    const known = this.#known.get(key) ?? form;
    this.#known.set(key, known);
    return known;
  }
}

function merged(
  weight: LogicalTensor,
  additions: readonly Addition[],
  forms: Forms,
  codedFloats: CodedFloats,
): LogicalTensor {
  const [{ adapter }] = additions as [Addition];
  const [rows = 0, ...rest] = weight.shape;
  const columns = elementsOf(rest);
  const base = baseOf(weight, codedFloats);
  if (base === undefined || weight.shape.length < 2 || rows * columns === 0) {
    const message = `adapter ${quoted(adapter.name)}: the weight ${quoted(weight.name)} is ${weight.type} [${weight.shape.join(', ')}], which no product can be added to`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: weight.name });
  }
  const pairs = additions.map((addition) => pairOf(addition, weight, rows, columns));
  // Bound the memory of a tile: it reads `up` for its own rows, and `down` for all columns.
  const tileRows = Math.min(rows, Math.ceil(tileElements / columns));
  const floats = pairs.reduce(
    (sum, { rank, middle }) => sum + rank * (tileRows + columns * (middle === undefined ? 1 : 2)),
    0,
  );
  if (4 * floats > mostMatrixBytes) {
    const message = `adapter ${quoted(adapter.name)}: the matrices of the weight ${quoted(weight.name)} take ${4 * floats} bytes, of ${mostMatrixBytes} allowed`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: weight.name });
  }
  const form = forms.shared({ codec: 'low-rank', base: base.form, rows, columns, floats: base.floats, pairs });
  const parts = additions.flatMap(({ layer }, i) => {
    const roles = lowRankRoles(i);
    return [
      { role: roles.up, tensor: layer.up },
      { role: roles.down, tensor: layer.down },
      ...(layer.middle === undefined ? [] : [{ role: roles.middle, tensor: layer.middle }]),
    ];
  });
  return { ...weight, form, parts: [...weight.parts, ...parts] };
}

/** Rows of a layer of an adapter, with their weight. */
interface Placed extends LayerPlace {
  readonly layer: AdapterLayer;
}

/** Places of layers in a model. */
interface Places {
  readonly names: LayerNames;
  /** Places of a layer's rows, in their order, in a model of another layout. */
  placesOf(layer: string): readonly LayerPlace[] | undefined;
  /** Rows that a place has; undefined if the weight is not taken apart. */
  rowsAt(place: LayerPlace): number | undefined;
}

/** The weights of each layer. @throws ScalepointError `BAD_FILE` if a layer has none, several, or that of another layer */
function weightsOf({ name, layers }: Adapter, { names, placesOf, rowsAt }: Places): readonly Placed[] {
  const found = new Map<string, Placed>();
  const lost: AdapterLayer[] = [];
  const fail = (message: string, { up }: AdapterLayer): never => {
    throw new ScalepointError('BAD_FILE', `adapter ${quoted(name)}: ${message}`, {
      tensor: up.name,
      byteOffset: up.byteOffset,
    });
  };
  for (const layer of layers) {
    const each = (processorLayers(layer.module) ?? [layer.module]).map((module): readonly LayerPlace[] => {
      // Layers of diffusers may stand for others of an original, or for rows of them, and the other way round.
      const elsewhere = innerNames(module)
        .map(placesOf)
        .find((places) => places !== undefined);
      if (elsewhere !== undefined) return elsewhere;
      const [own, ...others] = names.find(module);
      if (others.length > 0)
        fail(`the layer ${quoted(module)} may be any of ${quotedNames([own as string, ...others])}`, layer);
      const place =
        own === undefined ? openClipPlace(module, (weight) => rowsAt({ weight }) !== undefined) : { weight: own };
      return place === undefined ? [] : [place];
    });
    const places = each.some((one) => one.length === 0) ? [] : each.flat();
    if (places.length === 0) lost.push(layer);
    let row = 0;
    for (const place of places) {
      const { weight, part } = place;
      const key = `${part?.index ?? ''} ${weight}`;
      const before = found.get(key)?.layer;
      if (before !== undefined)
        fail(`the layers ${quoted(before.module)} and ${quoted(layer.module)} both change ${quoted(weight)}`, layer);
      const rows = places.length === 1 ? undefined : rowsAt(place);
      // Rows of a transpose, and of three matrices, are not taken apart. They do not fit the weight.
      const isCut = rows !== undefined && row + rows <= (layer.up.shape[0] ?? 0) && !layer.turned;
      found.set(key, { ...place, layer: isCut ? { ...layer, up: storedRows(layer.up, row, rows) } : layer });
      row += rows ?? 0;
    }
    if (row > 0 && row !== layer.up.shape[0])
      fail(
        `the layer ${quoted(layer.module)} has ${layer.up.shape[0]} rows, and ${quotedNames(places.map(({ weight }) => weight))} have ${row}`,
        layer,
      );
  }
  const [first] = lost;
  if (first !== undefined) {
    const list = quotedNames(
      lost.map(({ module }) => module),
      mostListed,
    );
    fail(`${lost.length} of its ${layers.length} layers match no weight of the model: ${list}`, first);
  }
  return [...found.values()];
}

/** A weight with adapters for some of the layers that it joins. @throws ScalepointError `UNSUPPORTED_DTYPE` */
function mergedInParts(
  weight: LogicalTensor,
  additions: readonly (Addition & Pick<LayerPlace, 'part'>)[],
  forms: Forms,
  codedFloats: CodedFloats,
): LogicalTensor {
  const [{ adapter, part: first }] = additions as [(typeof additions)[number]];
  const pieces = first && takenApart(weight, first.count);
  if (pieces === undefined || additions.some(({ part }) => part?.count !== first?.count)) {
    const message =
      `adapter ${quoted(adapter.name)}: layers of another layout are rows of the weight ${quoted(weight.name)}, and ${weight.type} ` +
      `[${weight.shape.join(', ')}] with other adapters or scales is not taken apart; make floats of it first, or merge one adapter at a time`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: weight.name });
  }
  const each = pieces.map((piece, i) => {
    const own = additions.filter(({ part }) => part?.index === i);
    return own.length === 0 ? piece : merged(piece, own, forms, codedFloats);
  });
  return joinedAgain(weight.name, each);
}

/**
 * Adds adapters to the weights that they name, in their order.
 * @param codedFloats type of the floats of codes; undefined for plain elements
 * @throws ScalepointError `BAD_FILE` if a layer of an adapter matches no weight, or has another shape; `UNSUPPORTED_DTYPE`
 */
export function mergeAdapters(
  tensors: readonly LogicalTensor[],
  adapters: readonly Adapter[],
  codedFloats: CodedFloats,
): LogicalTensor[] {
  const weights = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const places: Places = {
    names: new LayerNames([...weights.keys()]),
    placesOf: layerPlaces([...weights.keys()]),
    rowsAt({ weight, part }) {
      const whole = weights.get(weight);
      return (part === undefined || whole === undefined ? whole : takenApart(whole, part.count)?.[part.index])
        ?.shape[0];
    },
  };
  const additions = new Map<string, (Addition & Pick<LayerPlace, 'part'>)[]>();
  for (const adapter of adapters) {
    for (const { weight, part, layer } of weightsOf(adapter, places)) {
      const list = additions.get(weight) ?? [];
      list.push({ adapter, layer, part });
      additions.set(weight, list);
    }
  }
  const forms = new Forms();
  return tensors.map((tensor) => {
    const own = additions.get(tensor.name);
    if (own === undefined) return tensor;
    const isWhole = own.every(({ part }) => part === undefined);
    return isWhole ? merged(tensor, own, forms, codedFloats) : mergedInParts(tensor, own, forms, codedFloats);
  });
}

/** The note about adapters in a result. */
export function adapterNote(adapters: readonly Adapter[]): Note {
  const texts = adapters.map(
    ({ name, strength, layers }) =>
      `${quoted(name)} (${layers.length} ${layers.length === 1 ? 'weight' : 'weights'}, strength ${strength})`,
  );
  const data = { adapters: adapters.map(({ name, strength, layers }) => ({ name, strength, weights: layers.length })) };
  const text = `the weights are those with ${texts.join(' and ')} added; errors in the report are those against these`;
  return noteOf('adaptersMerged', data, text);
}
