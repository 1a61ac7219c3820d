// The look into a single tensor: its choice, the question to the worker that reads it, and the answer.
import type { ErrorMeasures } from 'scalepoint';
import type { PlannedTensorInfo, PlanOptions } from 'scalepoint/model';
import type { PageFile } from '../shared/page-files.js';
import type { CoreFacts } from '../shared/site.js';
import { kindOf, planKind } from './kinds.js';
import { countNumbers } from './sizes.js';

/** The run of neighboring numbers that is shown. */
interface Window {
  /** Halvings of the numbers; 0 shows all. */
  readonly zoom: number;
  /** The window among those of this zoom, from 0 on. */
  readonly place: number;
}

/** A question about a tensor. */
export interface LookQuestion {
  /** Unique among the tensors of all files. */
  readonly key: string;
  readonly files: readonly PageFile[];
  readonly name: string;
  /** Count of its numbers. */
  readonly numbers: number;
  /** Its conversion, if a kind is that of the plan: its name in the result, and the options. */
  readonly planned: { readonly name: string; readonly options: PlanOptions } | undefined;
  readonly kinds: readonly [string, string];
  /** Names of the kinds. */
  readonly labels: readonly [string, string];
  readonly window: Window;
}

/** Numbers of a tensor as a picture, in rows. */
export interface WeightPicture {
  readonly rows: number;
  readonly columns: number;
  /** Rows and columns of the tensor, and those around the window that they are taken from. */
  readonly of: readonly [rows: number, columns: number];
  readonly around: readonly [rows: number, columns: number];
  /** True if there are more numbers between the ones shown. */
  readonly isSampled: boolean;
  /** Numbers of this size and beyond have the full color. */
  readonly reach: number;
  readonly before: Float32Array;
  /** The same numbers, restored in the two ways. */
  readonly after: readonly [Float32Array, Float32Array];
}

/** One way to store the tensor. */
export interface Side {
  readonly kind: string;
  readonly error: ErrorMeasures;
  /** Bits a number, scales included. */
  readonly bits: number;
  /** The restored values of the window, each once, ascending; of many, the two at each end. */
  readonly levels: Float32Array;
  /** True if `levels` lacks those between the ends. */
  readonly hasMore: boolean;
  /** Share of the window that lies beyond its levels. */
  readonly clipped: number;
  readonly reach: number;
  /** Histogram of the errors of the window, from -reach to reach of both sides. */
  readonly errors: ArrayLike<number>;
}

export interface LookAnswer {
  /** Count of the numbers that were tried, and whether these are all. */
  readonly numbers: number;
  readonly exact: boolean;
  readonly window: Window;
  /** The closest zoom, and the count of windows of this one. */
  readonly zooms: number;
  readonly places: number;
  /** Beginning and end of what is shown, in the numbers that were tried. */
  readonly part: readonly [from: number, to: number];
  readonly low: number;
  readonly high: number;
  readonly bins: Uint32Array;
  readonly reach: number;
  readonly sides: readonly [Side, Side];
  /** Names of both, as they were asked for. */
  readonly labels: readonly [string, string];
  readonly picture: WeightPicture;
  /** Version and tier of the core that computed it. */
  readonly core: CoreFacts;
}

/** The tensor in the panel. */
export interface Look {
  readonly name: string;
  /** Its type in the plan; undefined if it stays as it is. */
  readonly type: string | undefined;
  readonly kinds: readonly [string, string];
  readonly window: Window;
  /** True if the visitor chose the types to compare. Otherwise A follows the plan. */
  readonly isChosen: boolean;
  readonly answer?: LookAnswer;
  readonly problem?: string;
}

/** The types to compare at first: that of the plan, and one with half or twice the bits. @param isPlanned false: there is no plan */
export function firstLook({ name, to, kept, shape, bytesAfter }: PlannedTensorInfo, isPlanned: boolean): Look {
  const type = isPlanned && kept === undefined ? to : undefined;
  const bits = (8 * bytesAfter) / countNumbers(shape);
  const kinds = type === undefined ? (['int8-row', 'int4-128'] as const) : ([planKind, halfOrTwice(bits)] as const);
  return { name, type, kinds, window: { zoom: 0, place: 0 }, isChosen: false };
}

const halfOrTwice = (bits: number) => (bits < 6 ? 'int8-row' : 'int4-128');

/** The name of a kind for the tensor in the panel. */
export function kindLabel(id: string, { type }: Pick<Look, 'type'>): string {
  return id === planKind && type !== undefined ? `${type}, as planned` : kindOf(id).label;
}
