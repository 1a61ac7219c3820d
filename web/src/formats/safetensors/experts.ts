/**
 * Experts that a checkpoint stores in two tensors, all of a layer together, as a matrix each: `X.experts.N.gate_proj`, `up_proj` and
 * `down_proj`, which loaders of codes take.
 * Reference: github.com/vllm-project/llm-compressor, src/llmcompressor/modeling/moe/linear_experts.py at 009e5b9 and gpt_oss.py at 147339a;
 * github.com/vllm-project/vllm, `load_weights` in vllm/model_executor/models/gemma4.py at 001cabc and granitemoehybrid.py at 0195c9e.
 */
import { type Note, noteOf } from '../../core/note.js';
import type { Codec } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { microscaled } from '../codecs/microscaled.js';
import { codedRows } from '../coded-rows.js';
import type { ElementView, LogicalTensor } from '../format.js';

/** A tensor as far as its name and shape go. */
type Named = Pick<LogicalTensor, 'name' | 'shape'>;

/** A matrix or a bias of each expert in a stack. */
export interface ExpertPart {
  readonly projection: 'gate_proj' | 'up_proj' | 'down_proj';
  readonly shape: readonly number[];
  /** Its elements among those of an expert in the stack. */
  readonly view: ElementView;
}

/** A tensor with parts of all experts of a layer. */
export interface ExpertStack {
  /** The module of the experts, such as `model.layers.0.mlp.experts`. */
  readonly module: string;
  readonly experts: number;
  readonly parts: readonly ExpertPart[];
  readonly end: '.weight' | '.bias';
}

/** Names of stacks: those of transformers; and of Granite, whose experts stand beside their router. */
const usual = /^(.*\bexperts)\.(gate_up_proj|down_proj)(_bias)?(?:\.weight)?$/s;
const granite = /^(.*\bblock_sparse_moe)\.(input_linear|output_linear)\.weight$/s;

/**
 * The stacks of a model, by the names of their tensors. Shapes tell if outputs or inputs of a matrix come first. Gates and ups are halves,
 * or take turns in models whose experts have biases, such as gpt-oss.
 */
export function expertStacks(tensors: readonly Named[]): ReadonlyMap<string, ExpertStack> {
  const layers = new Map<string, Partial<Record<'joined' | 'down' | 'joinedBias' | 'downBias', Named>>>();
  for (const tensor of tensors) {
    const [, prefix, which, bias] = usual.exec(tensor.name) ?? [];
    const [, block, linear] = which === undefined ? (granite.exec(tensor.name) ?? []) : [];
    const module = prefix ?? (block === undefined ? undefined : `${block}.experts`);
    if (module === undefined) continue;
    const isJoined = which === 'gate_up_proj' || linear === 'input_linear';
    const layer = layers.get(module) ?? {};
    layers.set(module, layer);
    layer[`${isJoined ? 'joined' : 'down'}${bias === undefined ? '' : 'Bias'}`] = tensor;
  }
  const stacks = new Map<string, ExpertStack>();
  for (const [module, { joined, down, joinedBias, downBias }] of layers) {
    const [experts = 0, first = 0, second = 0] = joined?.shape ?? [];
    const [others, third = 0, fourth = 0] = down?.shape ?? [];
    if (joined === undefined || down === undefined || joined.shape.length !== 3 || down.shape.length !== 3) continue;
    const isStraight = first === 2 * fourth && second === third;
    const [rows, columns] = isStraight ? [fourth, third] : [third, fourth];
    const isTurned = second === 2 * third && first === fourth;
    if (others !== experts || !(isStraight || isTurned) || experts * rows * columns === 0) continue;
    const takesTurns = joinedBias !== undefined;
    // Elements from one output to the next, and from one input to the next.
    const [output, input] = isStraight ? [columns, 1] : [1, 2 * rows];
    const half = (i: 0 | 1, more: ElementView['dims'], step: number): ElementView => ({
      offset: i * (takesTurns ? step : rows * step),
      dims: [[rows, takesTurns ? 2 * step : step], ...more],
    });
    const halves = (shape: readonly number[], more: ElementView['dims'], step: number) =>
      (['gate_proj', 'up_proj'] as const).map((projection, i) => ({
        projection,
        shape,
        view: half(i as 0 | 1, more, step),
      }));
    const whole = (shape: readonly number[], ...dims: ElementView['dims']) => [
      { projection: 'down_proj' as const, shape, view: { offset: 0, dims } },
    ];
    const put = (tensor: Named, parts: readonly ExpertPart[], end: ExpertStack['end']) =>
      stacks.set(tensor.name, { module, experts, parts, end });
    put(joined, halves([rows, columns], [[columns, input]], output), '.weight');
    const [downOutput, downInput] = isStraight ? [rows, 1] : [1, columns];
    put(down, whole([columns, rows], [columns, downOutput], [rows, downInput]), '.weight');
    if (joinedBias?.shape.join() === [experts, 2 * rows].join()) put(joinedBias, halves([rows], [], 1), '.bias');
    if (downBias?.shape.join() === [experts, columns].join()) put(downBias, whole([columns], [columns, 1]), '.bias');
  }
  return stacks;
}

/** The name of an expert's matrix or bias. */
export const expertName = ({ module, end }: ExpertStack, expert: number, { projection }: ExpertPart): string =>
  `${module}.${expert}.${projection}${end}`;

/** A part of an expert; undefined if its codes cannot be taken apart. */
function expertPart(
  stacked: LogicalTensor,
  stack: ExpertStack,
  expert: number,
  part: ExpertPart,
): LogicalTensor | undefined {
  const { form, parts, shape: all, type } = stacked;
  const { shape, view } = part;
  const [{ role, tensor }] = parts as [LogicalTensor['parts'][number]];
  const whole = { name: expertName(stack, expert, part), shape, type, form, isRenamed: true };
  const size = elementsOf(all) / stack.experts;
  if (form.codec === 'microscaled') {
    const coded = codedRows({ ...view, offset: expert * size + view.offset }, stacked, microscaled as unknown as Codec);
    return coded && { ...whole, parts, gathered: { width: shape.at(-1) as number, coded } };
  }
  if (form.codec !== 'cast' || parts.length !== 1 || tensor.rearranged || stacked.gathered !== undefined)
    return undefined;
  const element = tensor.bytes / elementsOf(all);
  const begin = tensor.byteOffset + expert * size * element;
  // Elements that follow each other are a stretch of the file.
  let run = 1;
  const isStretch = view.dims.toReversed().every(([count, stride]) => {
    const follows = stride === run;
    run *= count;
    return follows;
  });
  if (isStretch) {
    const stretch = { shape, bytes: elementsOf(shape) * element, byteOffset: begin + view.offset * element };
    return { ...whole, parts: [{ role, tensor: { ...tensor, ...stretch } }] };
  }
  const own = { ...tensor, shape: all.slice(1), bytes: size * element, byteOffset: begin };
  return { ...whole, parts: [{ role, tensor: own }], gathered: { width: shape.at(-1) as number, view } };
}

/** The tensors of a model, with a matrix for each expert in the place of its stack. */
export function withoutStacks(tensors: readonly LogicalTensor[]): LogicalTensor[] {
  const stacks = expertStacks(tensors);
  if (stacks.size === 0) return [...tensors];
  // All tensors of a layer's experts become matrices, or none of them.
  const apart = new Map<string, LogicalTensor[]>();
  const whole = new Set<string>();
  for (const tensor of tensors) {
    const stack = stacks.get(tensor.name);
    if (stack === undefined) continue;
    const all: LogicalTensor[] = [];
    for (let e = 0; e < stack.experts; e++)
      for (const part of stack.parts) {
        const one = expertPart(tensor, stack, e, part);
        if (one === undefined) whole.add(stack.module);
        else all.push(one);
      }
    apart.set(tensor.name, all);
  }
  return tensors.flatMap((tensor) =>
    whole.has(stacks.get(tensor.name)?.module ?? '') ? [tensor] : (apart.get(tensor.name) ?? [tensor]),
  );
}

/** The note about experts that are stored apart. @param before the tensors of the model */
export function apartNotes(before: readonly Named[], after: readonly Named[]): Note[] {
  if (after.length === before.length) return [];
  const names = new Set(after.map(({ name }) => name));
  const tensors = before.flatMap(({ name }) => (names.has(name) ? [] : [name]));
  const many = tensors.length === 1 ? '1 tensor' : `${tensors.length} tensors`;
  const text = `${many} with the experts of a layer are written as a matrix for each expert, as llm-compressor does and vLLM loads them`;
  return [noteOf('expertsApart', { tensors }, text)];
}
