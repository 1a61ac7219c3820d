/**
 * Reasons to keep tensors, as data, with the words of those that formats share. Formats and conversions add their own kinds in their
 * folders, and words for them with `reasonText`.
 */

/** A reason to keep a tensor. Code branches on the kind. */
export interface Reason {
  readonly kind: string;
  /** More data, by kind. */
  readonly [datum: string]: unknown;
}

/** A reason that several formats have. */
export type SharedReason =
  /** A rule keeps it. */
  | { readonly kind: 'rule' }
  /** The target copies every tensor. */
  | { readonly kind: 'copy' }
  /** It already has the target type. */
  | { readonly kind: 'sameType' }
  /** Tensors of this number of dimensions are not converted. */
  | {
      readonly kind: 'rank';
      /** Number of dimensions. */
      readonly rank: number;
    }
  /** It has no elements. */
  | { readonly kind: 'empty' }
  /** Tensors of this type are not converted. */
  | {
      readonly kind: 'dtype';
      /** Its type, such as `F64`. */
      readonly dtype: string;
    }
  /** Its elements are not floats. */
  | {
      readonly kind: 'nonFloat';
      /** Its type, such as `I64`. */
      readonly dtype: string;
    }
  /** Groups of `by` elements do not divide a dimension. */
  | {
      readonly kind: 'notDivisible';
      /** The dimension, in elements. */
      readonly dimension: number;
      /** Elements that share a scale. */
      readonly by: number;
    }
  /** Codes and scales would not take fewer bytes. */
  | { readonly kind: 'notSmaller' }
  /** Its name marks it as one of these. */
  | {
      /** The part of the model that the name tells. */
      readonly kind: 'bias' | 'embedding' | 'norm' | 'router' | 'notWeight';
    };

type SharedKind = SharedReason['kind'];

type WordsOf<Kind extends SharedKind> = string | ((reason: Extract<SharedReason, { kind: Kind }>) => string);

/** Words in reports. */
const words: { readonly [Kind in SharedKind]: WordsOf<Kind> } = {
  rule: 'by a rule',
  copy: 'copy',
  sameType: 'same type',
  rank: ({ rank }) => ['a single number', 'a vector'][rank] ?? `${rank} dimensions`,
  empty: 'empty',
  dtype: ({ dtype }) => `${dtype} is not converted`,
  nonFloat: 'not a float',
  notDivisible: ({ dimension, by }) => `row length ${dimension} is not a multiple of group size ${by}`,
  notSmaller: 'not smaller',
  bias: 'bias',
  embedding: 'embedding',
  norm: 'norm',
  router: 'router',
  notWeight: 'name does not end in .weight',
};

/** Makes a function from reasons to words, from the words of each kind. */
export function reasonWords(known: Readonly<Record<string, string | ((reason: never) => string)>>) {
  return (reason: Reason): string | undefined => {
    if (!Object.hasOwn(known, reason.kind)) return undefined;
    const found = known[reason.kind] as string | ((reason: Reason) => string);
    return typeof found === 'string' ? found : found(reason);
  };
}

/** The words of a reason that several formats have; undefined for others. */
export const sharedReasonText = reasonWords(words);

/** Reasons without data, made once because a model may have a hundred thousand tensors. */
export const reasons = {
  rule: { kind: 'rule' },
  copy: { kind: 'copy' },
  sameType: { kind: 'sameType' },
  empty: { kind: 'empty' },
  notSmaller: { kind: 'notSmaller' },
  bias: { kind: 'bias' },
  embedding: { kind: 'embedding' },
  norm: { kind: 'norm' },
  router: { kind: 'router' },
  notWeight: { kind: 'notWeight' },
} as const satisfies { readonly [Kind in SharedKind]?: { readonly kind: Kind } };

/** Caches reasons by their datum. */
export function cachedReason<Datum>(make: (datum: Datum) => Reason): (datum: Datum) => Reason {
  const known = new Map<Datum, Reason>();
  return (datum) => {
    const reason = known.get(datum) ?? make(datum);
    known.set(datum, reason);
    return reason;
  };
}

/** The reason to keep a float type that is not converted. */
export const dtypeReason = cachedReason((dtype: string) => ({ kind: 'dtype', dtype }) satisfies SharedReason);

/** The reason to keep tensors whose elements are not floats. */
export const nonFloatReason = cachedReason((dtype: string) => ({ kind: 'nonFloat', dtype }) satisfies SharedReason);

/** The reason to keep tensors of a rank. */
export const rankReason = cachedReason((rank: number) => ({ kind: 'rank', rank }) satisfies SharedReason);
