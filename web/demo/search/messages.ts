import type { CoreFacts } from '../shared/site.js';
import type { Settings } from './settings.js';

/** The vectors that are searched. */
export interface DataFacts {
  readonly name: string;
  /** True if the page made them. */
  readonly made: boolean;
  readonly count: number;
  readonly dimension: number;
  readonly queries: number;
  /** Vectors that the file has beyond those. */
  readonly left: number;
  /** Milliseconds of an exact search in plain JavaScript. */
  readonly exactMilliseconds: number;
}

/** Figures of a setting: means over all queries. */
export interface Figures {
  readonly recall: number;
  readonly milliseconds: number;
  readonly bytes: number;
}

/** Scores of some vectors for one query. */
export interface Picture {
  /** Exact scores, and those by codes. The true neighbors come first. */
  readonly exact: Float32Array;
  readonly estimates: Float32Array;
  /** Number of true neighbors. */
  readonly neighbors: number;
  /** Scores of the best vectors by codes, best first. */
  readonly best: Float32Array;
}

/** Names the results of settings. */
export type FiguresKey =
  `${Settings['metric']} ${Settings['part']} ${Settings['bits']} ${Settings['factor']} ${Settings['rows']}`;
export type PictureKey = `picture ${Settings['metric']} ${Settings['part']} ${Settings['bits']} ${number}`;
export const figuresKey = ({ metric, part, bits, factor, rows }: Settings): FiguresKey =>
  `${metric} ${part} ${bits} ${factor} ${rows}`;
export const pictureKey = ({ metric, part, bits, query }: Settings): PictureKey =>
  `picture ${metric} ${part} ${bits} ${query}`;

/** A step of the work. */
export type SearchStep =
  | { readonly kind: 'core'; readonly facts: CoreFacts }
  | { readonly kind: 'doing'; readonly words: string; readonly share: number }
  | { readonly kind: 'data'; readonly facts: DataFacts }
  | { readonly kind: 'figures'; readonly key: FiguresKey; readonly figures: Figures }
  | { readonly kind: 'picture'; readonly key: PictureKey; readonly picture: Picture };
