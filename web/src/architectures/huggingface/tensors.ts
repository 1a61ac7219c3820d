/**
 * Turns the tensors of a folder into recipes, by tables of names and shapes. Each tensor must match one row of the table, and each required
 * row one tensor.
 */
import { quoted } from '../../formats/files/bytes.js';
import type { ElementView } from '../../formats/format.js';
import type { FolderTensor, Recipe, RowWindow } from '../recipe.js';
import { badConfig, badFolderFile } from './errors.js';

/** Sizes of a model. The tables give shapes in terms of them. */
export interface Sizes {
  readonly layers: number;
  /** Elements of a token's vector. */
  readonly hidden: number;
  readonly vocabulary: number;
  readonly heads: number;
  readonly keyHeads: number;
  /** Elements of a head. */
  readonly head: number;
  /** All heads together, and all key heads. */
  readonly queries: number;
  readonly keys: number;
  /** Queries, keys and values in one matrix. */
  readonly together: number;
  readonly feedForward: number;
  readonly experts?: number | undefined;
  readonly expertFeedForward?: number | undefined;
  /** Rows of the experts that all tokens pass, together. */
  readonly sharedFeedForward?: number | undefined;
  /** Tokens of a context. */
  readonly positions?: number | undefined;
  /** Outputs of a classifier. */
  readonly labels?: number | undefined;
  /** Number of buckets of relative positions, as T5 has them. */
  readonly buckets?: number | undefined;
  readonly tokenTypes?: number | undefined;
}

/** A size of a model by its name, such as `hidden`; a multiple of it, such as `2 feedForward` for gate and up in one matrix; or a number. */
type Size = keyof Sizes | `${2 | 3} ${keyof Sizes}` | number;

/** Finds the rows of a share. */
export type RowsOf = (sizes: Sizes) => readonly RowWindow[];

/** Finds the elements of a tensor, in their order in the result. */
export type ViewOf = (sizes: Sizes) => ElementView;

/** A part of a tensor of the folder that becomes a tensor of its own: some of its rows, or some of its elements in an order of their own. */
interface Share {
  /** Name in GGUF, as in `Row`. */
  readonly to: string;
  /** Shape of the weight in GGUF. A bias has the product of all dimensions but the last one. */
  readonly shape: readonly Size[];
  /** First rows and numbers of rows, in the order in which they follow each other in the result. Vectors have rows of one element. */
  readonly windows?: RowsOf;
  /** The elements, in place of rows. */
  readonly view?: ViewOf;
}

/** A row of the table: a tensor, or two if it has a bias. */
export interface Row {
  /** Name in the folder, without `.weight`; in a layer, the part behind its number. `#` stands for the number of an expert. */
  readonly from: string;
  /** Name in GGUF, without `.weight`; in a layer, the part behind its number. Not used with `shares`. */
  readonly to: string;
  /** Shape of the weight in the folder, row-major. A bias has the first dimension. */
  readonly shape: readonly Size[];
  /** Set if the name in the folder is whole, without `.weight`: ending of the name in GGUF. */
  readonly whole?: '.weight' | '.bias' | '';
  /** Set if its rows are divided between tensors. All windows of a share have the same number of rows. */
  readonly shares?: readonly Share[];
  /** The size that `#` counts up to. @defaultValue 'experts' */
  readonly count?: Size;
  /** Its place among the tensors of an expert that follow each other in a stack, and their number: gates and ups in one matrix of each. */
  readonly among?: readonly [place: number, of: number];
  /** Layers that have it. All by default. */
  readonly only?: (layer: number) => boolean;
  /** Set if the elements of its weight are in another order in GGUF. */
  readonly view?: ViewOf;
  /** Shape in GGUF, if it is not the folder's. */
  readonly as?: readonly Size[];
  /** True if dimensions of 1 do not count in the folder's shape. */
  readonly squeezed?: true;
  /** True if it has a bias; `stated` if attention_bias of config.json says so. @defaultValue 'never' */
  readonly bias?: 'optional' | 'always' | 'never' | 'stated';
  /** True if it may be missing. */
  readonly optional?: true;
  /** The heads whose rows move to Llama's rotary layout. */
  readonly permute?: 'heads' | 'keyHeads';
  /** Added to its weight in GGUF, such as 1 if the model multiplies by 1 + weight and llama.cpp by the weight. */
  readonly add?: number;
  /** True if it holds logarithms of decays, of which llama.cpp wants -exp(x). */
  readonly negativeExp?: true;
  /** True if its weight is rounded to three values. */
  readonly ternary?: true;
  /** The factor of its weight in GGUF, and a second one for each row, by which products are multiplied. */
  readonly factor?: number | undefined;
  readonly rowFactors?: Float32Array<ArrayBuffer> | undefined;
  /** Rows in GGUF, if these are more than the folder's, of zeros. */
  readonly filledTo?: Size;
}

/** Layers of one kind. */
interface LayerTable {
  /** Key of config.json with the number of layers, for errors. @defaultValue 'num_hidden_layers' */
  readonly layersKey?: string;
  /** Prefix before the number of a layer. @defaultValue 'model.layers.' */
  readonly layerPrefix?: string;
  /** Prefix of the number of a layer in GGUF. @defaultValue 'blk.' */
  readonly layerTarget?: string;
  readonly layer: readonly Row[];
}

const usualLayersKey = 'num_hidden_layers';
const usualPrefix = 'model.layers.';

/** Rows outside of the layers of most decoders. */
export const usualOutside: readonly Row[] = [
  { from: 'model.embed_tokens', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
  { from: 'model.norm', to: 'output_norm', shape: ['hidden'] },
  { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
];

/** The tensors of an architecture. */
export interface TensorTable extends LayerTable {
  /** @defaultValue embedding, last norm and head of Llama */
  readonly outside?: readonly Row[];
  /** Layers of a second kind, as of a decoder behind an encoder, and their number. */
  readonly second?: LayerTable & { readonly layers: number };
  /** Maps a name in the folder to the name in the table; undefined if the tensor is left out. */
  readonly rename?: (name: string) => string | undefined;
  /** For a tower in place of the language model: maps each name in the folder, as `rename` does. */
  readonly towerName?: (name: string) => string | undefined;
}

/** Tensors that no model needs: buffers of old files. */
const bufferEnds = ['.attention.masked_bias', '.attention.bias', '.rotary_emb.inv_freq'];

/** Scales of caches and of inputs in checkpoints with codes. They say how layers run, and belong to no weight. */
const runScales = /\.([kvq]|kv|prob)_scale$|\.(input|output)_(scale|global_scale|zero_point)$/;

/** The head of a classifier, which llama.cpp's decoders have no place for. */
export const scoreName = 'score.weight';

/** Parts of the names of towers for pictures and sound. The language model runs without them. */
export const towerParts =
  /visual\.|vision\.|vision_|audio\.|audio_|projector\.|connector\.|image_newline|patch_embed|^mlp1?\./;

/** Name of a tensor in the tables; undefined if it is left out. */
function canonical(name: string, table: TensorTable): string | undefined {
  if (table.towerName !== undefined) return table.towerName(name);
  if (bufferEnds.some((end) => name.endsWith(end)) || towerParts.test(name)) return undefined;
  if (runScales.test(name) || (name === scoreName && table.outside?.some(({ from }) => from === 'score') !== true))
    return undefined;
  const own = name.replace('language_model.', '');
  return table.rename === undefined ? own : table.rename(own);
}

/** An expected tensor of the folder. */
interface ExpectedTensor {
  readonly to: string;
  readonly shape: readonly number[];
  readonly required: boolean;
  readonly row: Row;
  readonly expert: number | undefined;
  readonly isBias?: true;
}

/** A size as a number; 0 for one that a model lacks. */
function resolveSize(size: Size, sizes: Sizes): number {
  if (typeof size === 'number') return size;
  const [name, times] = size.split(' ').reverse() as [keyof Sizes, string?];
  return Number(times ?? 1) * (sizes[name] ?? 0);
}

/** Tensors that `#` stands for. */
const countOf = ({ count = 'experts' }: Row, sizes: Sizes) => resolveSize(count, sizes);

/** Tensors that are stacked to one. */
const stackOf = (row: Row, sizes: Sizes) => countOf(row, sizes) * (row.among?.[1] ?? 1);

/** All expected tensors of a model, by name. */
function places(table: TensorTable, sizes: Sizes): Map<string, ExpectedTensor> {
  const all = new Map<string, ExpectedTensor>();
  const put = (row: Row, from: string, to: string, expert?: number) => {
    const shape = row.shape.map((size) => resolveSize(size, sizes));
    const { whole } = row;
    const name = whole === undefined ? `${from}.weight` : from;
    all.set(name, { to: `${to}${whole ?? '.weight'}`, shape, required: row.optional !== true, row, expert });
    const bias = row.bias ?? 'never';
    if (bias !== 'never')
      all.set(`${from}.bias`, {
        to: `${to}.bias`,
        // A matrix that is stored transposed has its rows in the second place.
        shape: (row.as ?? row.shape).slice(0, 1).map((size) => resolveSize(size, sizes)),
        required: bias === 'always',
        row,
        expert: undefined,
        isBias: true,
      });
  };
  const putAll = (row: Row, from: string, to: string) => {
    if (!row.from.includes('#')) put(row, from, to);
    else {
      const [place, of] = row.among ?? [0, 1];
      for (let e = 0; e < countOf(row, sizes); e++) put(row, from.replace('#', String(e)), to, e * of + place);
    }
  };
  for (const row of table.outside ?? usualOutside) putAll(row, row.from, row.to);
  const putLayers = ({ layerPrefix = usualPrefix, layerTarget = 'blk.', layer }: LayerTable, layers: number) => {
    for (let i = 0; i < layers; i++)
      for (const row of layer) {
        if (row.only?.(i) === false) continue;
        putAll(row, `${layerPrefix}${i}.${row.from}`, `${layerTarget}${i}.${row.to}`);
      }
  };
  putLayers(table, sizes.layers);
  if (table.second !== undefined) putLayers(table.second, table.second.layers);
  return all;
}

/** Endings of matrices that are stored as F32 in every file. */
const floatEnds = [
  '.ffn_gate_inp.weight',
  '.ffn_gate_inp_shexp.weight',
  '.shortconv.conv.weight',
  '.ssm_conv1d.weight',
  '.ssm_conv1d_q.weight',
  '.ssm_conv1d_k.weight',
  '.ssm_conv1d_v.weight',
  '.altup_correct_coef.weight',
  '.altup_predict_coef.weight',
  '.time_mix_w1.weight',
  '.time_mix_w2.weight',
  '.time_mix_lerp_fused.weight',
];

/** True if a tensor is stored as F32 in every file. */
function alwaysFloat32(name: string, shape: readonly number[]): boolean {
  return (
    shape.length <= 1 ||
    !name.endsWith('.weight') ||
    name.endsWith('_norm.weight') ||
    floatEnds.some((end) => name.endsWith(end)) ||
    name === 'position_embd.weight' ||
    name === 'token_types.weight'
  );
}

function recipe({ to, shape, row, expert, isBias }: ExpectedTensor, sizes: Sizes, sources: readonly string[]): Recipe {
  const own = row.as === undefined || isBias === true ? [...shape] : row.as.map((size) => resolveSize(size, sizes));
  const [rows = 0] = shape;
  const zeroRows = row.filledTo === undefined ? 0 : resolveSize(row.filledTo, sizes) - rows;
  if (zeroRows > 0) own[0] = rows + zeroRows;
  const { factor = 1, rowFactors } = row;
  const { among: [, joined] = [0, 1] } = row;
  const whole = expert === undefined ? own : [countOf(row, sizes), joined * (own[0] as number), ...own.slice(1)];
  return {
    name: to,
    shape: whole,
    sources,
    ...(row.view === undefined || isBias === true ? {} : { view: row.view(sizes) }),
    ...(row.permute === undefined ? {} : { permuteHeads: sizes[row.permute] }),
    ...(row.add === undefined || isBias === true ? {} : { add: row.add }),
    ...(row.negativeExp === true ? { negativeExp: true } : {}),
    ...(row.ternary === true && isBias !== true ? { ternary: true } : {}),
    ...(factor === 1 || isBias === true ? {} : { factor }),
    ...(rowFactors === undefined || isBias === true ? {} : { rowFactors }),
    ...(zeroRows > 0 ? { zeroRows } : {}),
    ...(alwaysFloat32(to, whole) ? { float32: true } : {}),
  };
}

/** Recipes of the tensors that share the rows of one. */
function sharedOut({ to, row, isBias }: ExpectedTensor, sizes: Sizes, source: string): Recipe[] {
  const ending = isBias === true ? '.bias' : (row.whole ?? '.weight');
  const prefix = to.slice(0, to.length - (row.to + ending).length);
  return (row.shares ?? []).map((share) => {
    const [all, windows] = [share.shape.map((size) => resolveSize(size, sizes)), share.windows?.(sizes)];
    const shape = isBias === true ? [all.slice(0, -1).reduce((a, b) => a * b, 1)] : all;
    const name = `${prefix}${share.to}${ending}`;
    return {
      name,
      shape,
      sources: windows === undefined ? [source] : windows.map(() => source),
      ...(windows === undefined ? {} : { windows }),
      ...(share.view === undefined ? {} : { view: share.view(sizes) }),
      ...(row.negativeExp === true ? { negativeExp: true } : {}),
      ...(alwaysFloat32(name, shape) ? { float32: true } : {}),
    };
  });
}

/** The tensors of a folder, under their names in the table, and those that each of them becomes. */
export function* expectedTensors(table: TensorTable, sizes: Sizes) {
  for (const [name, place] of places(table, sizes)) {
    const { shape, required, row, expert } = place;
    const made = row.shares === undefined ? [recipe(place, sizes, [name])] : sharedOut(place, sizes, name);
    yield { name, shape, required, to: expert === undefined ? made.map((one) => one.name) : [place.to] };
  }
}

/** Element types that widen to float32 directly. Integers and float8 need scales. */
const floats = ['F64', 'F32', 'F16', 'BF16'];

/** Endings of the tensors of quantized weights. */
const quantizedEnds =
  /\.(weight_packed|weight_scale|weight_scale_inv|weight_zero_point|weight_shape|qweight|qzeros|scales|g_idx|SCB|absmax|quant_map|quant_state\.\S+)$/;

function badFolderTensor(name: string, problem: string): never {
  badFolderFile('safetensors', `tensor ${quoted(name)} ${problem}`, name);
}

/** A model whose tensors are looked for. */
interface ExpectedModel {
  readonly table: TensorTable;
  readonly sizes: Sizes;
  readonly architecture: string;
  /** Keys that config.json lacks, with the values that were assumed, for errors. */
  readonly assumed: readonly string[];
}

/** Fails for an unexpected tensor, with a reason derived from its name. @param own its name in the table */
function misplaced(name: string, own: string, { table, sizes: { layers }, architecture }: ExpectedModel): never {
  if (/\.lora_[AB]\.|\.lora_embedding_|\.lora_magnitude_/.test(name))
    badFolderTensor(name, 'is of an adapter (LoRA); merge it into its model first');
  if (quantizedEnds.test(name))
    badFolderTensor(name, 'is of quantized weights; convert the model that they were made from');
  const { layerPrefix = usualPrefix, layersKey = usualLayersKey } = table;
  const digits = own.startsWith(layerPrefix) ? /^\d+/.exec(own.slice(layerPrefix.length)) : null;
  if (digits !== null && Number(digits[0]) >= layers)
    badConfig(`${layersKey} is ${layers}, but there is a tensor ${quoted(name)}`, name);
  badFolderTensor(name, `has no place in a model of the architecture ${architecture}`);
}

/**
 * Recipes of a folder, in the order of its tensors. A stack of experts takes the position of its last one.
 * @throws ScalepointError `BAD_FILE` for a missing or unexpected tensor, or one of another shape
 */
export function recipes(tensors: readonly FolderTensor[], model: ExpectedModel): readonly Recipe[] {
  const { table, sizes } = model;
  const assumed = model.assumed.length === 0 ? '' : `; missing keys have defaults: ${model.assumed.join(', ')}`;
  // Reject absurd sizes before a table is built for them: every layer has more tensors than these.
  const stacks = table.layer.filter(({ from }) => from.includes('#'));
  const experts = stacks.reduce((sum, row) => sum + countOf(row, sizes), 0);
  const layers = sizes.layers + (table.second?.layers ?? 0);
  let least = layers;
  if (least <= tensors.length)
    for (const row of stacks)
      for (let i = 0; i < sizes.layers; i++) if (row.only?.(i) !== false) least += countOf(row, sizes);
  if (least > tensors.length) {
    const all = `${table.layersKey ?? usualLayersKey} ${sizes.layers}`;
    const ofExperts = experts === 0 ? '' : ` with ${experts} tensors of experts each`;
    badConfig(`there are only ${tensors.length} tensors, too few for ${all}${ofExperts}${assumed}`);
  }
  // Match each tensor with its place in the table.
  const all = places(table, sizes);
  const found = new Map<string, string>();
  const unfinished = new Map<string, (string | undefined)[]>();
  const result: Recipe[] = [];
  for (const tensor of tensors) {
    const own = canonical(tensor.name, table);
    if (own === undefined) continue;
    const place = all.get(own) ?? misplaced(tensor.name, own, model);
    const before = found.get(own);
    if (before !== undefined)
      badFolderFile(
        'safetensors',
        `tensors ${quoted(before)} and ${quoted(tensor.name)} have the same place`,
        tensor.name,
      );
    found.set(own, tensor.name);
    // Check the type and shape of the tensor.
    const { name, dtype, shape } = tensor;
    if (!floats.includes(dtype)) badFolderTensor(name, `is ${dtype}; weights have to be ${floats.join(', ')}`);
    const [has, wants] = [shape, place.shape].map((all) => (place.row.squeezed ? all.filter((n) => n !== 1) : all));
    if (has?.join() !== wants?.join())
      badFolderTensor(
        name,
        `has the shape [${shape.join(', ')}]; by config.json it is [${place.shape.join(', ')}]${assumed}`,
      );
    if (place.expert === undefined) {
      const { shares } = place.row;
      if (shares === undefined) result.push(recipe(place, sizes, [tensor.name]));
      else result.push(...sharedOut(place, sizes, tensor.name));
      continue;
    }
    // Collect experts until their stack is whole.
    const stack = unfinished.get(place.to) ?? Array.from<string | undefined>({ length: stackOf(place.row, sizes) });
    unfinished.set(place.to, stack);
    stack[place.expert] = tensor.name;
    if (!stack.includes(undefined)) result.push(recipe(place, sizes, stack as string[]));
  }
  // Name the first missing tensor.
  for (const [name, { required }] of all)
    if (required && !found.has(name)) badFolderFile('safetensors', `the tensor ${quoted(name)} is missing`, name);
  return result;
}
