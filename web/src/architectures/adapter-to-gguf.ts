/**
 * The adapter of a folder's model as a file for llama.cpp's --lora.
 * Reference: github.com/ggml-org/llama.cpp, convert_lora_to_gguf.py at 0b03ada, src/llama-adapter.cpp.
 */
import { ScalepointError } from '../core/errors.js';
import type { LowRankForm, LowRankPair } from '../formats/codecs/low-rank.js';
import { lowRankRoles } from '../formats/codecs/low-rank.js';
import { quoted, quotedNames } from '../formats/files/bytes.js';
import type { LogicalTensor } from '../formats/format.js';
import type { GgufKey } from '../formats/gguf/pairs.js';
import { adapterArchitecture } from '../formats/gguf/signature.js';
import { plainTensor } from '../formats/tensors.js';
import type { SourceWeight } from './carry-out.js';
import { folderRecipes } from './huggingface/convert.js';
import type { Conversion, Folder, Recipe } from './recipe.js';

function refuse(message: string, tensor?: string): never {
  const where = tensor === undefined ? '' : `tensor ${quoted(tensor)}: `;
  throw new ScalepointError('UNSUPPORTED_DTYPE', `${where}${message}`, { tensor });
}

/** The matrices of a weight [rows, columns]: up [rows, rank] and down [rank, columns], or the transposes of both. */
interface Matrices extends Pick<LowRankPair, 'rank' | 'turned'> {
  readonly rows: number;
  readonly columns: number;
  /** The number whose quotient by the rank multiplies the product. */
  readonly alpha: number;
  readonly up: LogicalTensor;
  readonly down: LogicalTensor;
}

/** The matrices that an adapter adds to a weight; undefined without. */
function matricesOf({ name, form, parts }: LogicalTensor): Matrices | undefined {
  if (form.codec !== 'low-rank') return undefined;
  const { rows, columns, pairs } = form as LowRankForm;
  const [pair, ...others] = pairs as [LowRankPair];
  if (others.length > 0)
    refuse('several adapters change it, and a file of llama.cpp holds one: convert each alone', name);
  if (pair.magnitude !== undefined) refuse('its adapter is DoRA, which a file of llama.cpp cannot hold', name);
  if (pair.middle !== undefined) refuse('its adapter has three matrices, and llama.cpp takes two', name);
  const { rank, turned, strength, alpha, root } = pair;
  const roles = lowRankRoles(0);
  const matrix = (role: string) => {
    const { tensor } = parts.find((part) => part.role === role) as LogicalTensor['parts'][number];
    return { ...plainTensor(tensor), name: `${name} ${role}` };
  };
  // llama.cpp divides alpha by the rank.
  const ofRank = strength * alpha * (root ? Math.sqrt(rank) : 1);
  return { rows, columns, rank, turned, alpha: ofRank, up: matrix(roles.up), down: matrix(roles.down) };
}

/** The contents of an adapter's file, and the tensors that they are made of. @throws ScalepointError `UNSUPPORTED_DTYPE`, and for the folder */
export async function convertAdapter(
  folder: Folder,
  weights: readonly SourceWeight[],
): Promise<{ readonly conversion: Conversion; readonly weights: readonly SourceWeight[] }> {
  const found = new Map<string, Matrices>();
  for (const { tensor } of weights) {
    const matrices = matricesOf(tensor);
    if (matrices !== undefined) found.set(tensor.name, matrices);
  }
  const { architecture, tensors: recipes } = await folderRecipes(folder);
  // Layers may have other factors than the first, as by alpha_pattern. llama.cpp takes an alpha of 0 for none.
  const alpha = Math.fround([...found.values()].find((one) => one.alpha !== 0)?.alpha ?? 1);
  const used = new Set<string>();
  const tensors = recipes.flatMap((recipe): Recipe[] => {
    const { name, sources, shape, windows, permuteHeads, view, factor = 1 } = recipe;
    const all = sources.map((source) => found.get(source));
    const [first] = all;
    if (first === undefined) {
      const other = sources.find((source) => found.has(source));
      if (other !== undefined) refuse(`${name} joins it with weights that the adapter does not change`, other);
      return [];
    }
    const [source] = sources as [string];
    const { rows, columns, rank, turned } = first;
    const isSame = (one: Matrices | undefined) =>
      one?.rank === rank && one.turned === turned && one.alpha === first.alpha;
    const isStack = sources.length > 1 && new Set(sources).size === sources.length;
    if (!all.every(isSame) || (isStack && shape.length !== 3))
      refuse(`the matrices of the weights that ${name} joins cannot be joined`, source);
    for (const one of sources) used.add(one);
    // Only a transpose of the whole has the elements of rows together.
    const isTransposed =
      view?.offset === 0 &&
      JSON.stringify(view.dims) ===
        JSON.stringify([
          [columns, 1],
          [rows, columns],
        ]);
    const moves = windows !== undefined || permuteHeads !== undefined;
    const isOther = recipe.zeroRows ?? recipe.rowFactors ?? recipe.ternary;
    if ((view !== undefined && !isTransposed) || isOther !== undefined)
      refuse(`llama.cpp has its elements in another order in ${name}, which two matrices cannot follow`, source);
    /** One of the two matrices. @param isTurned true for its transpose */
    const matrix = (end: string, which: 'up' | 'down', isTurned: boolean, own: Partial<Recipe>): Recipe => {
      const [p, q] = which === 'up' ? [rows, rank] : [rank, columns];
      const [stored, wanted] = [turned ? [q, p] : [p, q], isTurned ? [q, p] : [p, q]] as const;
      const list = isStack ? (all as readonly Matrices[]) : [first];
      if (turned !== isTurned && own.windows !== undefined)
        refuse(`the rows of its matrix lie apart, and ${name} takes some of them`, source);
      const [down = 1, across = 1] = stored;
      const turn =
        turned === isTurned
          ? {}
          : {
              view: {
                offset: 0,
                dims: [
                  [across, 1],
                  [down, across],
                ] as const,
              },
            };
      const size = own.shape?.[0] ?? wanted[0];
      return {
        name: `${name}.${end}`,
        sources: own.windows?.map(() => first[which].name) ?? list.map((one) => one[which].name),
        ...turn,
        ...own,
        shape: [...(isStack ? [list.length] : []), size as number, wanted[1] as number],
        float32: true,
      };
    };
    const scaled = factor * (first.alpha / alpha);
    const scale = scaled === 1 ? {} : { factor: scaled };
    // The rows of the embedding are looked up: its first matrix has a row for each token.
    const isEmbedding = name === 'token_embd.weight';
    const count = windows?.reduce((sum, [, n]) => sum + n, 0);
    const ownRows: Partial<Recipe> = {
      ...(windows === undefined ? {} : { windows, shape: [count as number] }),
      ...(permuteHeads === undefined ? {} : { permuteHeads }),
    };
    if (moves && isTransposed) refuse(`llama.cpp has its columns in another order in ${name}`, source);
    if (isTransposed) return [matrix('lora_a', 'up', true, {}), matrix('lora_b', 'down', true, scale)];
    if (isEmbedding) return [matrix('lora_a', 'up', false, ownRows), matrix('lora_b', 'down', true, scale)];
    return [matrix('lora_a', 'down', false, {}), matrix('lora_b', 'up', false, { ...ownRows, ...scale })];
  });
  const lost = [...found.keys()].filter((name) => !used.has(name));
  if (lost.length > 0)
    refuse(
      `llama.cpp's model of the architecture ${architecture} has no place for ${quotedNames(lost)}, which the adapter changes`,
    );
  const keys: GgufKey[] = [
    { name: 'general.architecture', type: 'string', value: architecture },
    { name: 'general.type', type: 'string', value: adapterArchitecture },
    { name: 'adapter.type', type: 'string', value: 'lora' },
    { name: 'adapter.lora.alpha', type: 'f32', value: alpha },
    { name: 'general.quantization_version', type: 'u32', value: 2 },
  ];
  const made = [...found.values()].flatMap(({ up, down }) => [up, down]);
  const types = new Map(tensors.map(({ name }) => [name, 'F32']));
  return {
    conversion: { architecture: adapterArchitecture, keys, tensors, notes: [], types },
    weights: made.map((tensor) => ({ tensor, dtype: tensor.type, isCoded: false })),
  };
}
