/** Reasons for keeping tensors, as plans and reports hold them: data and words together. */
import type { ConversionReason } from '../architectures/registry.js';
import { type Reason, type SharedReason, sharedReasonText } from '../formats/reason.js';
import type { FormatReason } from '../formats/registry.js';
import type { Maker } from './maker.js';

/**
 * The reason why a tensor stays as it is: the kind with its data, such as `{ kind: 'rank', rank: 1 }`, and the same in a few words, such as
 * `1-D`. Programs decide by the kind, never by the text.
 */
export type KeptReason = (SharedReason | FormatReason | ConversionReason) & {
  /** The reason in a few words. */
  readonly text: string;
};

/** Adds the words to a reason. Returns the same object for the same reason, as a model may have a hundred thousand tensors. */
export type KeptFor = (reason: Reason) => KeptReason;

/** Makes the function that adds words to the reasons of a result. */
export function keptIn({ format, converter }: Maker): KeptFor {
  const known = new Map<Reason, KeptReason>();
  const textFor = (reason: Reason) =>
    sharedReasonText(reason) ?? converter?.reasonText?.(reason) ?? format.reasonText?.(reason) ?? reason.kind;
  return (reason) => {
    const found = known.get(reason) ?? ({ ...reason, text: textFor(reason) } as KeptReason);
    known.set(reason, found);
    return found;
  };
}
