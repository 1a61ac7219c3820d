/** Why weights of safetensors results are kept, beyond the reasons that several formats have. */
import { type Reason, reasonWords } from '../reason.js';

/** A reason that only safetensors results have. */
export type SafetensorsReason =
  /** By its name it is the output layer, or belongs to codes. */
  | {
      /** The part of the model that the name tells. */
      readonly kind: 'lmHead' | 'scale' | 'zeroPoint';
    }
  /** A linear layer that is stored transposed, which loaders take for another class. */
  | { readonly kind: 'conv1D' }
  /** Elements of less than 16 bits, or complex ones. */
  | {
      readonly kind: 'smallFloat';
      /** Bits of an element: 4, 6 or 8. */
      readonly bits: number;
    }
  | { readonly kind: 'complex' }
  /** Another tensor has the name that a part of it would have. */
  | {
      readonly kind: 'nameTaken';
      /** The part: `data`, `scale`, `zeroPoint` or `shape`. */
      readonly role: string;
    };

/** A part whose name is taken. */
const parts: Readonly<Record<string, string>> = {
  data: 'packed',
  scale: 'scale',
  zeroPoint: 'zero point',
  shape: 'shape',
};

type WordsOf<Kind extends SafetensorsReason['kind']> =
  | string
  | ((reason: Extract<SafetensorsReason, { kind: Kind }>) => string);

/** What reports say of each kind. */
const words: { readonly [Kind in SafetensorsReason['kind']]: WordsOf<Kind> } = {
  lmHead: 'lm_head',
  scale: 'scale',
  zeroPoint: 'zero point',
  conv1D: 'Conv1D',
  smallFloat: ({ bits }) => `float${bits} already`,
  complex: 'complex',
  nameTaken: ({ role }) => `${parts[role] ?? role} name taken`,
};

/** The words of such a reason; undefined for others. */
export const safetensorsReasonText = reasonWords(words);

/** A reason of this format, as all formats have them. */
export const own = (reason: SafetensorsReason): Reason => reason;
