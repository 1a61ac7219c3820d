// Measures what each tensor loses in each type, and finds the types that fit into a size. Only one worker has the table.
import {
  fitTypes,
  type ModelPlan,
  measureTypes,
  type PlanOptions,
  planModel,
  sizeCurve,
  type TypeTable,
} from 'scalepoint/model';
import { answerCalls } from '../shared/calls.js';
import { inputOf, type PageFile } from '../shared/page-files.js';
import type { Fit } from './choice.js';
import { type SizeCurve, type SizeMark, worthChoosing } from './sizes.js';

/** The part of a table that the page shows. */
export interface SizeView {
  /** Names of tensors that stay as they are. */
  readonly kept: readonly string[];
  /** Results of the presets for the other tensors. */
  readonly presets: readonly { readonly label: string; readonly options: PlanOptions }[];
}

let files: readonly PageFile[] = [];
let table: TypeTable | undefined;

/** Largest difference in bytes between a tensor in a plan and in the table, which adds its share of the header. */
const nearBytes = 0.1;
const headerBytes = 1024;

/** Loss of a plan; undefined if it has types that the table lacks. */
function lossOf({ tensors }: ModelPlan, { tensors: known }: TypeTable): number | undefined {
  let sum = 0;
  for (const [i, { name, to, bytesAfter }] of tensors.entries()) {
    const own = known[i]?.name === name ? known[i] : known.find((one) => one.name === name);
    const distance = (bytes: number) => Math.abs(bytes - bytesAfter);
    const types = [...(own?.types ?? [])].sort((a, b) => distance(a.bytes) - distance(b.bytes));
    const type = types.find((one) => one.to === to) ?? types[0];
    if (type === undefined || distance(type.bytes) > nearBytes * bytesAfter + headerBytes) return undefined;
    sum += type.error;
  }
  return sum;
}

/** The presets on the same scale. One that is not possible, or that has other types, is left out. */
async function marksOf(known: TypeTable, presets: SizeView['presets']): Promise<SizeMark[]> {
  const marks: SizeMark[] = [];
  for (const { label, options } of presets) {
    const plan = await planModel(inputOf(files), options).catch(() => undefined);
    const error = plan && lossOf(plan, known);
    if (plan !== undefined && error !== undefined) marks.push({ label, bytes: plan.totals.bytesAfter, error });
  }
  return marks;
}

/** The table with tensors that stay as they are. Their present type comes first. */
function without({ tensors, ...rest }: TypeTable, kept: readonly string[]): TypeTable {
  const names = new Set(kept);
  return {
    ...rest,
    tensors: tensors.map((tensor) =>
      names.has(tensor.name) ? { ...tensor, types: tensor.types.slice(0, 1) } : tensor,
    ),
  };
}

async function show({ kept, presets }: SizeView): Promise<SizeCurve> {
  if (table === undefined) throw new TypeError('nothing was measured yet');
  const known = without(table, kept);
  const { isDivergence } = known;
  const tensors = isDivergence ? 1 : known.tensors.filter(({ types }) => types.length > 1).length;
  const curve = worthChoosing(sizeCurve(known), tensors);
  if (curve.length < 2) return { kind: 'none' };
  return {
    kind: 'measured',
    curve,
    tensors,
    marks: await marksOf(known, presets),
    ...(isDivergence && { isDivergence }),
  };
}

/** A size to fit. */
interface FitQuestion {
  /** Options without a size. */
  readonly options: PlanOptions;
  readonly bytes: number;
  /** Names of tensors that stay as they are. */
  readonly kept: readonly string[];
}

/** The types for a size. Headers may be larger than the table says; then the tensors have less room, as `planModel` has it. */
async function typesFor({ options, bytes, kept }: FitQuestion): Promise<Fit> {
  if (table === undefined) throw new TypeError('nothing was measured yet');
  const known = without(table, kept);
  for (let size = bytes; ; ) {
    const { to, rules, error, bound } = fitTypes(known, { targetSize: size });
    const plan = await planModel(inputOf(files), {
      ...options,
      to,
      rules: [...(options.rules ?? []), ...rules],
    } as PlanOptions);
    const over = plan.totals.bytesAfter - bytes;
    if (over <= 0) return { to, rules, error, bound, bytes: plan.totals.bytesAfter };
    size -= over;
  }
}

const calls = {
  /** Measures a model. `options` are without a size. */
  async measure(
    question: { readonly files: readonly PageFile[]; readonly options: PlanOptions; readonly view: SizeView },
    onProgress: (step: { bytesDone: number; bytesTotal: number }) => void,
  ): Promise<SizeCurve> {
    files = question.files;
    table = await measureTypes(inputOf(files), {
      ...question.options,
      workers: 0,
      onProgress: ({ bytesDone, bytesTotal }) => onProgress({ bytesDone, bytesTotal }),
    });
    return show(question.view);
  },
  view: show,
  fit: typesFor,
};
export type SizeCalls = typeof calls;

answerCalls(calls);
