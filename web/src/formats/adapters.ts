/** Reads adapters, and merges them into the tensors of a model, which are then read together. */

import { ScalepointError } from '../core/errors.js';
import { noteOf } from '../core/note.js';
import { type Adapter, type AdapterLayer, badAdapter } from './adapters/adapter.js';
import { innerNames, LayerNames, openClipPlace, processorLayers } from './adapters/names.js';
import { castTypeOf } from './codecs/cast.js';
import { type Form, tileElements } from './codecs/codec.js';
import { elementsOf } from './codecs/elements.js';
import {
  isLowRankType,
  type LowRankForm,
  type LowRankPair,
  type LowRankType,
  lowRankRoles,
} from './codecs/low-rank.js';
import { quoted, quotedNames } from './files/bytes.js';
import type { CodedFloats, LogicalTensor, ModelAdapters } from './format.js';
import { type LayerPlace, layerPlaces, rearranged, storedRows, takenApart } from './safetensors/diffusers.js';
import { formSharing } from './safetensors/layouts/layout.js';
import { plainTensor } from './tensors.js';

export { type Adapter, readAdapter } from './adapters/adapter.js';

/** Layers without a weight that a message lists. */
const mostListed = 10;

/**
 * Most bytes of a weight's matrices as floats, of all adapters together, that a tile reads besides its own elements. They bound the memory of
 * workers. A rank of 512 in rows of 16384 takes 32 MiB.
 */
const mostMatrixBytes = 2 ** 25;

/** A layer of an adapter, with the adapter, and the rows of the weight that it stands for. */
interface Addition extends Pick<LayerPlace, 'part'> {
  readonly adapter: Adapter;
  readonly layer: AdapterLayer;
}

/** The matrices of a layer for a weight. @throws ScalepointError `BAD_FILE` */
function matricesFor({ adapter, layer }: Addition, weight: LogicalTensor): LowRankPair {
  const { down, up, middle, magnitude, turned, alpha, root, module } = layer;
  const stored = [up, down, middle, magnitude].filter((one) => one !== undefined);
  const strange = stored.find(({ dtype }) => !isLowRankType(dtype));
  if (strange !== undefined) {
    const message = `the tensor ${quoted(strange.name)} is ${strange.dtype}, which is not a float type that can be read`;
    badAdapter(adapter.name, message, strange);
  }
  // Bring the matrices of convolutions to two dimensions.
  const sides = ([first = 0, ...rest]: readonly number[]) => [first, elementsOf(rest)] as const;
  const [rows, columns] = sides(weight.shape);
  const [[upRows, upColumns], [downRows, downColumns]] = [sides(up.shape), sides(down.shape)];
  const rank = turned ? upRows : upColumns;
  const [a, inner = 0, ...kernels] = middle?.shape ?? [];
  const kernel = elementsOf(kernels);
  let fits = rank > 0;
  if (turned) fits &&= upColumns === rows && downRows === columns && downColumns === rank && middle === undefined;
  else if (middle === undefined) fits &&= upRows === rows && downRows === rank && downColumns === columns;
  else {
    fits &&= upRows === rows && a === rank && inner === rank && downRows === inner;
    fits &&= downColumns * kernel === columns && kernel > 0 && kernels.join() === weight.shape.slice(2).join();
  }
  if (magnitude !== undefined) fits &&= elementsOf(magnitude.shape) === rows;
  if (!fits) {
    const shapes = stored.map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`).join(', ');
    const message = `the matrices of the layer ${quoted(module)} (${shapes}) do not fit the weight ${quoted(weight.name)} [${weight.shape.join(', ')}]`;
    badAdapter(adapter.name, message, up);
  }
  const types = { up: up.dtype as LowRankType, down: down.dtype as LowRankType };
  const between = middle && { middle: { type: middle.dtype as LowRankType, inner, kernel } };
  const lengths = magnitude && { magnitude: magnitude.dtype as LowRankType };
  return { rank, ...types, turned, ...between, ...lengths, strength: adapter.strength, alpha, root };
}

/** Adds layers to a weight. @throws ScalepointError `BAD_FILE`, `UNSUPPORTED_DTYPE` */
function withAdditions(
  weight: LogicalTensor,
  additions: readonly Addition[],
  share: (form: LowRankForm) => LowRankForm,
  codedFloats: CodedFloats,
): LogicalTensor {
  const [{ adapter }] = additions as [Addition];
  const [part] = weight.parts as [LogicalTensor['parts'][number]];
  const refuse = (message: string): never => {
    const text = `adapter ${quoted(adapter.name)}: ${message}`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', text, { tensor: weight.name });
  };
  // Find the form before adapters are added.
  const { dtype } = part.tensor;
  const coded = codedFloats(weight.form);
  const floats = coded ?? (Object.hasOwn(castTypeOf, dtype) ? castTypeOf[dtype] : undefined);
  const base = coded === undefined ? ({ codec: 'cast', to: dtype } as Form) : weight.form;
  const [rows = 0, ...rest] = weight.shape;
  const columns = elementsOf(rest);
  if (floats === undefined || rest.length === 0 || rows * columns === 0) {
    const text = `${quoted(weight.name)} is ${weight.type} [${weight.shape.join(', ')}]`;
    return refuse(`the weight ${text}, which no product can be added to`);
  }
  const pairs = additions.map((addition) => matricesFor(addition, weight));
  // Bound the memory of a tile: it reads `up` for its own rows, and `down` for all columns.
  const tileRows = Math.min(rows, Math.ceil(tileElements / columns));
  const bytes = pairs.reduce((sum, { rank, middle }) => sum + 4 * rank * (tileRows + columns * (middle ? 2 : 1)), 0);
  if (bytes > mostMatrixBytes)
    refuse(`the matrices of the weight ${quoted(weight.name)} take ${bytes} bytes, of ${mostMatrixBytes} allowed`);
  const parts = additions.flatMap(({ layer: { up, down, middle, magnitude } }, i) => {
    const roles = lowRankRoles(i);
    return [
      { role: roles.up, tensor: up },
      { role: roles.down, tensor: down },
      ...(middle === undefined ? [] : [{ role: roles.middle, tensor: middle }]),
      ...(magnitude === undefined ? [] : [{ role: roles.magnitude, tensor: magnitude }]),
    ];
  });
  const form = share({ codec: 'low-rank', base, rows, columns, floats, pairs });
  return { ...weight, form, parts: [...weight.parts, ...parts] };
}

/** Rows of a layer of an adapter, with their weight. */
interface PlacedLayer extends LayerPlace {
  readonly layer: AdapterLayer;
}

/** Places of layers in a model. */
interface ModelLayers {
  readonly names: LayerNames;
  /** Places of a layer's rows, in their order, in a model of another layout. */
  placesOf(layer: string): readonly LayerPlace[] | undefined;
  /** Rows that a place has; undefined if the weight is not taken apart. */
  rowsAt(place: LayerPlace): number | undefined;
}

/** The weights of each layer. @throws ScalepointError `BAD_FILE` if a layer has none, several, or that of another layer */
function placedLayers({ name, layers }: Adapter, { names, placesOf, rowsAt }: ModelLayers): readonly PlacedLayer[] {
  const found = new Map<string, PlacedLayer>();
  const lost: AdapterLayer[] = [];
  for (const layer of layers) {
    const fail = (message: string): never => badAdapter(name, message, layer.up);
    const each = (processorLayers(layer.module) ?? [layer.module]).map((module): readonly LayerPlace[] => {
      // Layers of diffusers may stand for others of an original, or for rows of them, and the other way round.
      const elsewhere = innerNames(module).map(placesOf).find(Boolean);
      if (elsewhere !== undefined) return elsewhere;
      const weights = names.find(module);
      const [weight] = weights;
      if (weights.length > 1) fail(`the layer ${quoted(module)} may be any of ${quotedNames(weights)}`);
      if (weight !== undefined) return [{ weight }];
      const place = openClipPlace(module, (one) => rowsAt({ weight: one }) !== undefined);
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
        fail(`the layers ${quoted(before.module)} and ${quoted(layer.module)} both change ${quoted(weight)}`);
      const rows = places.length === 1 ? undefined : rowsAt(place);
      // Rows of a transpose, and of three matrices, are not taken apart. They do not fit the weight.
      const isCut = rows !== undefined && row + rows <= (layer.up.shape[0] ?? 0) && !layer.turned;
      const { up, magnitude } = layer;
      const some = isCut && {
        up: storedRows(up, row, rows),
        magnitude: magnitude && storedRows({ ...magnitude, shape: [elementsOf(magnitude.shape)] }, row, rows),
      };
      found.set(key, { ...place, layer: { ...layer, ...some } });
      row += rows ?? 0;
    }
    const [upRows] = layer.up.shape;
    const some = quotedNames(places.map(({ weight }) => weight));
    if (row > 0 && row !== upRows)
      fail(`the layer ${quoted(layer.module)} has ${upRows} rows, and ${some} have ${row}`);
  }
  const [first] = lost;
  if (first !== undefined) {
    const modules = lost.map(({ module }) => module);
    const list = quotedNames(modules, mostListed);
    badAdapter(name, `${lost.length} of its ${layers.length} layers match no weight of the model: ${list}`, first.up);
  }
  return [...found.values()];
}

/** The tensors of a model, some of which adapters replace. @throws ScalepointError `BAD_FILE` */
function withReplaced(tensors: readonly LogicalTensor[], adapters: readonly Adapter[]): readonly LogicalTensor[] {
  if (adapters.every(({ whole }) => whole.length === 0)) return tensors;
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const names = new LayerNames([...byName.keys()]);
  for (const { name: adapter, whole } of adapters)
    for (const { name, tensor } of whole) {
      const [found, ...others] = names.find(name.replace(/\.weight$/, ''));
      const before = found === undefined || others.length > 0 ? undefined : byName.get(found);
      if (before === undefined)
        return badAdapter(adapter, `the tensor ${quoted(tensor.name)} replaces one that the model lacks`, tensor);
      if (before.shape.join() !== tensor.shape.join()) {
        const shapes = `[${tensor.shape.join(', ')}], and that of the model [${before.shape.join(', ')}]`;
        badAdapter(adapter, `the tensor ${quoted(tensor.name)} is ${shapes}: tokens were added to its model`, tensor);
      }
      byName.set(before.name, { ...plainTensor(tensor), name: before.name, isRenamed: true });
    }
  return [...byName.values()];
}

/** Adds adapters to the weights that they name, in their order. See `ModelAdapters`. */
function mergeAdapters(
  given: readonly LogicalTensor[],
  adapters: readonly Adapter[],
  codedFloats: CodedFloats,
): LogicalTensor[] {
  const tensors = withReplaced(given, adapters);
  const weights = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const layers: ModelLayers = {
    names: new LayerNames([...weights.keys()]),
    placesOf: layerPlaces([...weights.keys()]),
    rowsAt({ weight: name, part }) {
      const weight = weights.get(name);
      const pieces = weight && part && takenApart(weight, part.count);
      return (part === undefined ? weight : pieces?.[part.index])?.shape[0];
    },
  };
  const additions = new Map<string, Addition[]>();
  for (const adapter of adapters) {
    for (const { weight, part, layer } of placedLayers(adapter, layers)) {
      const list = additions.get(weight) ?? [];
      list.push({ adapter, layer, part });
      additions.set(weight, list);
    }
  }
  const share = formSharing<LowRankForm>();
  return tensors.map((weight) => {
    const all = additions.get(weight.name);
    const [first] = all ?? [];
    if (all === undefined || first === undefined) return weight;
    if (all.every(({ part }) => part === undefined)) return withAdditions(weight, all, share, codedFloats);
    // Adapters of some of the layers that the weight joins are added to its rows.
    const { part, adapter } = first;
    const pieces = part && takenApart(weight, part.count);
    if (pieces === undefined || all.some((one) => one.part?.count !== part?.count)) {
      const message =
        `adapter ${quoted(adapter.name)}: layers of another layout are rows of the weight ${quoted(weight.name)}, and ${weight.type} ` +
        `[${weight.shape.join(', ')}] with other adapters or scales is not taken apart; make floats of it first, or merge one adapter at a time`;
      throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: weight.name });
    }
    const each = pieces.map((piece, i) => {
      const some = all.filter((one) => one.part?.index === i);
      return some.length === 0 ? piece : withAdditions(piece, some, share, codedFloats);
    });
    return rearranged(weight.name, each);
  });
}

/** The adapters of a model, which are merged into its weights in their order. */
export function modelAdapters(adapters: readonly Adapter[]): ModelAdapters {
  const texts = adapters.map(
    ({ name, strength, layers, whole }) =>
      `${quoted(name)} (${layers.length} ${layers.length === 1 ? 'weight' : 'weights'}, strength ${strength}` +
      `${whole.length === 0 ? '' : `, ${whole.length} replaced`})`,
  );
  const data = {
    adapters: adapters.map(({ name, strength, layers, whole }) => ({
      name,
      strength,
      weights: layers.length,
      ...(whole.length > 0 && { replaced: whole.length }),
    })),
  };
  const text = `the weights are those with ${texts.join(' and ')} added; errors in the report are those against these`;
  return {
    note: noteOf('adaptersMerged', data, text),
    replaced: adapters.flatMap(({ whole }) => whole.map(({ tensor }) => tensor.name)),
    merge: (tensors, codedFloats) => mergeAdapters(tensors, adapters, codedFloats),
  };
}
