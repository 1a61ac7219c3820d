/**
 * Why tensors are kept, as data. The reasons that several formats have are here, with their words. Formats and conversions add kinds of
 * their own in their folders, and say them with `reasonText`.
 */

/** Why a tensor is kept. Decisions are taken on the kind. */
export interface Reason {
  readonly kind: string;
  /** More about it, by kind. */
  readonly [datum: string]: unknown;
}

/** A reason that several formats have. */
export type SharedReason =
  /** A rule says so. */
  | { readonly kind: 'rule' }
  /** The target copies every tensor. */
  | { readonly kind: 'copy' }
  /** It has the type already that it would become. */
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
  /** Its elements are integers or the like. */
  | {
      readonly kind: 'nonFloat';
      /** Its type, such as `I64`. */
      readonly dtype: string;
    }
  /** A dimension is no multiple of the elements that share a scale. */
  | {
      readonly kind: 'notDivisible';
      /** The dimension, in elements. */
      readonly dimension: number;
      /** Elements that share a scale. */
      readonly by: number;
    }
  /** Its codes and their scales would take as many bytes. */
  | { readonly kind: 'notSmaller' }
  /** By its name it is one of these, or no weight. */
  | {
      /** The part of the model that the name tells. */
      readonly kind: 'bias' | 'embedding' | 'norm' | 'router' | 'notWeight';
    };

type SharedKind = SharedReason['kind'];

type WordsOf<Kind extends SharedKind> = string | ((reason: Extract<SharedReason, { kind: Kind }>) => string);

/** What reports say. */
const words: { readonly [Kind in SharedKind]: WordsOf<Kind> } = {
  rule: 'rule',
  copy: 'copy',
  sameType: 'same type',
  rank: ({ rank }) => (rank === 0 ? 'scalar' : `${rank}-D`),
  empty: 'empty',
  dtype: ({ dtype }) => dtype,
  nonFloat: 'not a float',
  notDivisible: ({ dimension, by }) => `rows of ${dimension}, groups of ${by}`,
  notSmaller: 'not smaller',
  bias: 'bias',
  embedding: 'embedding',
  norm: 'norm',
  router: 'router',
  notWeight: 'not a weight',
};

/** Makes the function that says the reasons of a format, from the words of each kind. */
export function reasonWords(known: Readonly<Record<string, string | ((reason: never) => string)>>) {
  return (reason: Reason): string | undefined => {
    if (!Object.hasOwn(known, reason.kind)) return undefined;
    const found = known[reason.kind] as string | ((reason: Reason) => string);
    return typeof found === 'string' ? found : found(reason);
  };
}

/** The words of a reason that several formats have; undefined for others. */
export const sharedReasonText = reasonWords(words);

/** Whether a tensor is kept for a reason that several formats have. */
export function isKeptFor(kind: SharedKind, kept: Reason | undefined): boolean {
  return kept?.kind === kind;
}

/** Reasons without more about them, made once: a model may have a hundred thousand tensors. */
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

/** Makes each reason once, by what it is about. */
export function cachedReason<Datum>(make: (datum: Datum) => Reason): (datum: Datum) => Reason {
  const known = new Map<Datum, Reason>();
  return (datum) => {
    const reason = known.get(datum) ?? make(datum);
    known.set(datum, reason);
    return reason;
  };
}

/** The reason of tensors of a type of floats that is not converted. */
export const dtypeReason = cachedReason((dtype: string) => ({ kind: 'dtype', dtype }) satisfies SharedReason);

/** The reason of tensors whose elements are no floats. */
export const nonFloatReason = cachedReason((dtype: string) => ({ kind: 'nonFloat', dtype }) satisfies SharedReason);

/** The reason of tensors with a number of dimensions. */
export const rankReason = cachedReason((rank: number) => ({ kind: 'rank', rank }) satisfies SharedReason);
