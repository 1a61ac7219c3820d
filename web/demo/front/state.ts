import type { Scalepoint } from 'scalepoint';
import type { Storage } from './network.js';

/** What a way to store the network came to. */
export interface Reading {
  readonly bytes: number;
  /** What each of the test digits was taken for. */
  readonly read: Uint8Array;
  readonly right: number;
}

/** Everything that the page shows. */
export interface State {
  /** Undefined until it is loaded. */
  readonly core: Scalepoint | undefined;
  /** How many test digits are drawn so far. */
  readonly digits: number;
  /** Width of the codes at the top. */
  readonly bits: number;
  /** Results by `keyOf` of the storage. */
  readonly readings: ReadonlyMap<string, Reading>;
  /** What the visitor's digit is taken for, by width. */
  readonly drawn: ReadonlyMap<number, number>;
  /** The digit of the wall that the pointer is on. */
  readonly pointed: number | undefined;
  /** The controls of the second look at the network. */
  readonly lab: Storage;
  // What is dragged in the figures of the story.
  readonly number: number;
  readonly scale: number;
  readonly outlier: number;
  readonly clips: boolean;
  readonly group: number;
  readonly bend: number;
}

export const initialState: State = {
  core: undefined,
  digits: 0,
  bits: 32,
  readings: new Map(),
  drawn: new Map(),
  pointed: undefined,
  lab: { bits: 2, granularity: 'tensor', range: 'min-max', codes: 'even' },
  number: 0.62,
  scale: 0.6,
  outlier: 5,
  clips: false,
  group: 0,
  bend: 0,
};

export const keyOf = ({ bits, granularity, range, codes }: Storage) =>
  bits >= 16 ? String(bits) : [bits, granularity, range, codes].join();
