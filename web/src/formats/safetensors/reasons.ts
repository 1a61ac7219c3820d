/** Reasons to keep weights of safetensors results, beyond those that formats share. */
import { reasonWords } from '../reason.js';

/** A reason that only safetensors results have. */
export type SafetensorsReason =
  /** Its name marks it as the output layer, as part of codes, or as a weight of a tower for pictures or sound. */
  | {
      /** The part of the model that the name tells. */
      readonly kind: 'lmHead' | 'scale' | 'zeroPoint' | 'tower';
    }
  /** It is a linear layer that is stored transposed, another class for loaders. */
  | { readonly kind: 'conv1D' }
  /** Its elements have less than 16 bits, or are complex. */
  | {
      readonly kind: 'smallFloat';
      /** Bits of an element: 4, 6 or 8. */
      readonly bits: number;
    }
  | { readonly kind: 'complex' }
  /** The program that loads the model computes it in floats. */
  | { readonly kind: 'plain' }
  /** Stays a float in models of this architecture. */
  | { readonly kind: 'sensitive' }
  /** Belongs to another model in the checkpoint, such as a text encoder or a VAE. */
  | { readonly kind: 'otherModel' }
  /** The program that loads the model reads sizes from this weight. */
  | { readonly kind: 'measured' }
  /** Its rows are too long for the codes. */
  | {
      readonly kind: 'longRows';
      /** Elements of a row. */
      readonly elements: number;
    }
  /** Loaders would skip it together with a layer of floats, whose name is part of its own. */
  | {
      readonly kind: 'skippedWith';
      /** The layer of floats. */
      readonly module: string;
    }
  /** Another tensor has the name of one of its parts. */
  | {
      readonly kind: 'nameTaken';
      /** The part: `data`, `scale`, `zeroPoint` or `shape`. */
      readonly role: string;
    };

/** Names of parts, where they are not their roles. */
const parts: Readonly<Record<string, string>> = { data: 'packed', zeroPoint: 'zero point' };

type WordsOf<Kind extends SafetensorsReason['kind']> =
  | string
  | ((reason: Extract<SafetensorsReason, { kind: Kind }>) => string);

/** Words of each kind in reports. */
const words: { readonly [Kind in SafetensorsReason['kind']]: WordsOf<Kind> } = {
  lmHead: 'lm_head',
  scale: 'scale',
  zeroPoint: 'zero point',
  tower: 'vision or audio tower',
  conv1D: 'Conv1D',
  smallFloat: ({ bits }) => `float${bits} already`,
  complex: 'complex',
  plain: 'computed in floats',
  sensitive: 'sensitive layer',
  otherModel: 'part of another model',
  measured: 'sizes are read from it',
  skippedWith: ({ module }) => `skipped with ${module}`,
  longRows: ({ elements }) => `rows of ${elements} elements`,
  nameTaken: ({ role }) => `${parts[role] ?? role} name taken`,
};

/** The words of such a reason; undefined for others. */
export const safetensorsReasonText = reasonWords(words);
