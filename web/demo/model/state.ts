// The state of the page, and figures that follow from it.
import type { ErrorMeasures } from 'scalepoint';
import type { ModelPlan, ModelReport, PlannedTensorInfo, QuantizeModelResult } from 'scalepoint/model';
import { type OutputsKind, type Preset, presets } from '../../src/tooling.js';
import type { ModelFile } from '../shared/files.js';
import type { PageProblem } from '../shared/problems.js';
import type { Fit, ModelChoice } from './choice.js';
import type { Look } from './look.js';
import type { SavedFiles } from './save.js';
import type { Thing } from './several.js';
import { countNumbers, type SizeCurve } from './sizes.js';

/** The error of a tensor. */
export interface MeasuredError {
  readonly error: ErrorMeasures;
  /** True if all of the tensor was measured, false for a sample. */
  readonly exact: boolean;
}

/** Errors by the names of tensors. */
export type Errors = ReadonlyMap<string, MeasuredError>;

/** The expected result of a preset. */
export interface Offer {
  readonly to: ModelChoice['to'];
  readonly bytesAfter?: number;
  readonly bytesBefore?: number;
  /** Number of tensors that it converts. */
  readonly converted?: number;
  /** Errors of the converted tensors; undefined until they are measured. */
  readonly errors?: Errors;
  readonly exact?: boolean;
  /** True if it is not possible because weights are codes already. */
  readonly isQuantized?: true;
  /** The reason why it is not possible. */
  readonly obstacle?: string;
}

/** The state of saving. */
type SavingState =
  | { readonly kind: 'none' | 'asking' | 'cancelled' }
  | {
      readonly kind: 'running';
      readonly tensor: string;
      readonly bytesDone: number;
      readonly bytesTotal: number;
      readonly secondsLeft: number | undefined;
    }
  | {
      readonly kind: 'saved';
      readonly name: string;
      readonly seconds: number;
      readonly result: QuantizeModelResult;
      readonly saved: SavedFiles;
    };

/** A save that is done. */
export type SavedRun = Extract<SavingState, { kind: 'saved' }>;

/** True while a result is saved, from the moment at which the dialog opens. */
export const isSaving = ({ kind }: Pick<SavingState, 'kind'>): boolean => kind === 'asking' || kind === 'running';

export type SortKey = 'order' | 'name' | 'type' | 'size' | 'before' | 'after' | 'sqnr' | 'mse' | 'cosine' | 'max';

/** Everything that the page shows. */
export interface State {
  /** Name of a file that is being opened. */
  readonly opening: string | undefined;
  readonly model: ModelFile | undefined;
  /** The ways to compare the outputs of the model; undefined if that was not found. */
  readonly outputs: OutputsKind | undefined;
  readonly choice: ModelChoice | undefined;
  /** Several things that were dropped together. */
  readonly several: readonly Thing[] | undefined;
  readonly plan: ModelPlan | undefined;
  /** The errors of the choice as far as they are known. Those of kept tensors stay, so that keeping one loses nothing. */
  readonly errors: Errors;
  /** `asks`: measuring would download numbers, so that it waits for the visitor. */
  readonly measuring: 'no' | 'asks' | 'sample' | 'all';
  /** Seconds that saving will take, about; undefined until something was measured. */
  readonly expectedSeconds: number | undefined;
  readonly offers: Readonly<Partial<Record<Preset, Offer>>>;
  /** True if the choice is not possible because weights are codes already. */
  readonly isQuantized: boolean;
  /** The problem with the choice. */
  readonly problem: PageProblem | undefined;
  readonly run: SavingState;
  /** True while the saved result is pushed to the hub. */
  readonly isPushing: boolean;
  readonly sort: { readonly key: SortKey; readonly descending: boolean };
  readonly filter: string;
  /** The columns that the visitor chose for the table; undefined for those that the window has room for. */
  readonly columns: ReadonlySet<SortKey> | undefined;
  readonly look: Look | undefined;
  /** The curve of sizes. */
  readonly sizes: SizeCurve;
  /** The types of the plan, if they were chosen for a size. */
  readonly fit: Fit | undefined;
}

/** The state while a model is open. */
export type OpenState = State & { readonly model: ModelFile; readonly choice: ModelChoice };

export const isOpen = (state: State): state is OpenState => state.model !== undefined && state.choice !== undefined;

export const initialState: State = {
  opening: undefined,
  model: undefined,
  outputs: undefined,
  choice: undefined,
  several: undefined,
  plan: undefined,
  errors: new Map(),
  measuring: 'no',
  expectedSeconds: undefined,
  offers: {},
  isQuantized: false,
  problem: undefined,
  run: { kind: 'none' },
  isPushing: false,
  sort: { key: 'order', descending: false },
  filter: '',
  columns: undefined,
  look: undefined,
  sizes: { kind: 'none' },
  fit: undefined,
};

/** True once the model can be shown with its sizes: what comes later has its room by then. */
export function isPlanned({ offers, problem, sizes }: Pick<State, 'offers' | 'problem' | 'sizes'>): boolean {
  const isOffered = presets.every((preset) => offers[preset] !== undefined);
  // A plan for a size waits until all types are measured, which shows its progress.
  return isOffered || problem !== undefined || sizes.kind === 'measuring';
}

/** The tensors as planned, or as in the file before there is a plan. */
export function tensorsOf({ plan, model }: Pick<State, 'plan' | 'model'>): readonly PlannedTensorInfo[] {
  if (plan !== undefined) return plan.tensors;
  return (model?.tensors ?? []).map(({ name, shape, dtype, bytes }) => {
    return { name, shape, from: dtype, to: dtype, bytesBefore: bytes, bytesAfter: bytes };
  });
}

/** SQNR over all measured tensors, in dB: squares of signal and of noise are summed first. Undefined if nothing was measured. */
export function totalSqnr(tensors: readonly PlannedTensorInfo[], errors: Errors): number | undefined {
  let signal = 0;
  let noise = 0;
  let found = false;
  for (const { name, shape, kept } of tensors) {
    const error = kept === undefined ? errors.get(name)?.error : undefined;
    if (error === undefined) continue;
    found = true;
    const own = error.mse * countNumbers(shape);
    noise += own;
    // Without noise the ratio is infinite, and the signal cannot be derived from it.
    if (Number.isFinite(error.sqnrDb)) signal += own * 10 ** (error.sqnrDb / 10);
  }
  if (!found) return undefined;
  return noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(signal / noise);
}

/** Converted tensors by their SQNR, the lowest first. */
export function worstOf({ plan, errors }: Pick<State, 'plan' | 'errors'>, most: number): readonly PlannedTensorInfo[] {
  const sqnr = ({ name }: PlannedTensorInfo) => errors.get(name)?.error.sqnrDb ?? Number.POSITIVE_INFINITY;
  return (plan?.tensors ?? [])
    .filter((tensor) => tensor.kept === undefined && Number.isFinite(sqnr(tensor)))
    .sort((a, b) => sqnr(a) - sqnr(b))
    .slice(0, most);
}

/** Types of weights that are codes. */
const codeType = /^(?:I?Q\d|TQ\d|MXFP4|NVFP4|F8|F6|F4|[IU]\d$|[IU]8$)/;

/** A file whose weights are codes already. */
interface QuantizedFile {
  /** The types of its codes, the most bytes first. */
  readonly types: readonly string[];
  /** True if the settings can start from the values of the codes. */
  readonly canAgain: boolean;
}

/** Facts about a file that is quantized already; undefined for others, and once the visitor wants it quantized again. */
export function quantizedFile(
  state: Pick<State, 'model' | 'plan' | 'offers' | 'isQuantized'>,
): QuantizedFile | undefined {
  const { model, plan, offers, isQuantized } = state;
  const canAgain = isQuantized || Object.values(offers).some((offer) => offer.isQuantized);
  const bytes = new Map<string, number>();
  let all = 0;
  for (const tensor of model?.tensors ?? []) {
    all += tensor.bytes;
    if (codeType.test(tensor.dtype)) bytes.set(tensor.dtype, (bytes.get(tensor.dtype) ?? 0) + tensor.bytes);
  }
  const coded = [...bytes.values()].reduce((a, b) => a + b, 0);
  const converts = !isQuantized && plan !== undefined && plan.totals.quantized + plan.totals.cast > 0;
  if (converts || !(canAgain || coded > all / 2)) return undefined;
  return { types: [...bytes].sort(([, a], [, b]) => b - a).map(([type]) => type), canAgain };
}

/** The report: that of the result once there is one, and before that the plan with the errors that are known. */
export function reportOf({
  run,
  plan,
  errors,
}: Pick<State, 'run' | 'plan' | 'errors'>):
  | ModelReport
  | { readonly isPlanned: true; readonly tensors: ModelReport['tensors']; readonly totals: ModelReport['totals'] }
  | undefined {
  if (run.kind === 'saved') return run.result.report;
  if (plan === undefined) return undefined;
  const tensors = plan.tensors.map((tensor) => {
    const measured = tensor.kept === undefined ? errors.get(tensor.name) : undefined;
    if (measured === undefined) return tensor;
    return { ...tensor, error: measured.error, ...(measured.exact ? {} : { isSampled: true }) };
  });
  return { isPlanned: true, tensors, totals: plan.totals };
}

/** Sort key of a tensor without the figure. Such tensors come last in both directions. */
const missing = Number.NaN;

function keyOf(
  key: SortKey,
  { name, from, to, shape, bytesBefore, bytesAfter, kept }: PlannedTensorInfo,
  errors: Errors,
) {
  const error = kept === undefined ? errors.get(name)?.error : undefined;
  const keys: Record<SortKey, string | number> = {
    order: 0,
    name,
    type: `${to} ${from}`,
    size: countNumbers(shape),
    before: bytesBefore,
    after: bytesAfter,
    sqnr: error?.sqnrDb ?? missing,
    mse: error?.mse ?? missing,
    cosine: error?.cosine ?? missing,
    max: error?.maxAbsoluteError ?? missing,
  };
  return keys[key];
}

/** A layer stands out if it is this many dB below the median, */
const outlierDecibels = 6;
/** or if its SQNR is below this: see `closeness`. */
const closeDecibels = 18;

/** Layers with errors that stand out, the largest first, and the median SQNR of all. Undefined before anything is measured. */
export function outliersOf(
  state: Pick<State, 'plan' | 'errors'>,
): { readonly names: readonly string[]; readonly median: number } | undefined {
  const sqnrOf = ({ name }: PlannedTensorInfo) => state.errors.get(name)?.error.sqnrDb ?? 0;
  const all = worstOf(state, Number.POSITIVE_INFINITY);
  const middle = all[Math.floor(all.length / 2)];
  if (middle === undefined) return undefined;
  const median = sqnrOf(middle);
  const bound = Math.max(median - outlierDecibels, closeDecibels);
  return { names: all.filter((tensor) => sqnrOf(tensor) < bound).map(({ name }) => name), median };
}

/** Tensors that the table marks: those that stand out. */
export function markedTensors(state: Pick<State, 'plan' | 'errors'>): ReadonlySet<string> {
  return new Set(outliersOf(state)?.names);
}

/** The tensors that the table shows, in its order. */
export function shownTensors(state: Pick<State, 'plan' | 'model' | 'errors' | 'sort' | 'filter'>) {
  const { sort, filter, errors } = state;
  const wanted = filter.trim().toLowerCase();
  const found = tensorsOf(state).filter(({ name }) => name.toLowerCase().includes(wanted));
  if (sort.key === 'order') return found;
  const sign = sort.descending ? -1 : 1;
  const keyed = found.map((tensor) => ({ tensor, key: keyOf(sort.key, tensor, errors) }));
  keyed.sort(({ key: a }, { key: b }) => {
    if (typeof a === 'number' && typeof b === 'number' && (Number.isNaN(a) || Number.isNaN(b))) {
      return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    }
    return a < b ? -sign : a > b ? sign : 0;
  });
  return keyed.map(({ tensor }) => tensor);
}
