import { classes } from '../shared/digits.mjs';
import { type FigureState, initialFigures } from '../shared/figures/state.js';
import { plainStorage, type Storage } from './network.js';
import { recorded } from './recorded.js';

/** Result of one way to store the network. */
export interface DigitReadings {
  readonly bytes: number;
  /** The digit read in each test image. */
  readonly read: Uint8Array;
  readonly right: number;
  /** True if it came with the page, false if this browser computed it. */
  readonly isRecorded?: true;
}

/** Text for the storyteller to continue, and how its weights are stored. */
export interface Telling {
  readonly begin: string;
  /** The width that is lit. */
  readonly bits: number;
  /** True: a scale for each 32 numbers. False: one for each tensor. */
  readonly groups: boolean;
  /** True: the range of least squared error. False: that of all numbers. */
  readonly search: boolean;
}

/** A story by the storyteller with one width. */
export interface Story {
  readonly bits: number;
  /** The beginning, which it was given. */
  readonly begin: string;
  /** Bytes of the model, in words. */
  readonly size: string;
  /** The words that it has written so far, and which of them differ from those of the original. */
  readonly words: readonly string[];
  readonly marks: readonly boolean[];
  /** The sentence about the whole story, once it is written. */
  readonly verdict: string;
}

/** Everything that the page shows. */
export interface State extends FigureState {
  /** True if the core or the weights could not be loaded. The page then shows recorded readings only. */
  readonly failed: boolean;
  /** Number of test digits drawn so far. */
  readonly digits: number;
  /** Number of test digits for which the wall has room. */
  readonly shown: number;
  /** Width of the codes at the top. */
  readonly bits: number;
  /** Results by `keyOf` of the storage. */
  readonly readings: ReadonlyMap<string, DigitReadings>;
  /** Readings of the visitor's digit, by width. */
  readonly drawn: ReadonlyMap<number, number>;
  /** The digit of the wall that the pointer is on. */
  readonly pointed: number | undefined;
  /** The controls of the second look at the network. */
  readonly lab: Storage;
  readonly telling: Telling;
  /** The stories of the last run, the widest first. */
  readonly stories: readonly Story[];
  /** The reason that the storyteller does not write. */
  readonly tellerFailure: string | undefined;
}

export const keyOf = ({ bits, granularity, range, codes }: Storage) =>
  bits === 32 ? '32' : [bits, granularity, range, codes].join();

/** The recorded results, so that the page works before core and weights have loaded. */
export function recordedReadings(): ReadonlyMap<string, DigitReadings> {
  return new Map(
    Object.entries(recorded).map(([bits, { bytes, read: digits }]) => {
      const read = Uint8Array.from(digits, Number);
      // The test digits are 0, 1, ... 9, 0, 1, ...
      const right = read.reduce((sum, digit, n) => sum + Number(digit === n % classes), 0);
      return [keyOf(plainStorage(Number(bits))), { bytes, read, right, isRecorded: true }];
    }),
  );
}

export const initialState: State = {
  ...initialFigures,
  failed: false,
  digits: 0,
  shown: 240,
  bits: 32,
  readings: recordedReadings(),
  drawn: new Map(),
  pointed: undefined,
  telling: {
    begin: 'Mia was a girl who lived near the lake. She had a dog named Rex.',
    bits: 3,
    groups: true,
    search: false,
  },
  stories: [],
  tellerFailure: undefined,
  lab: { bits: 2, granularity: 'tensor', range: 'min-max', codes: 'even' },
};
