/**
 * Reasons of the tools of ComfyUI-GGUF to keep tensors, beyond those that formats share.
 * Reference: github.com/city96/ComfyUI-GGUF, tools/convert.py at 4dfc025 (branch auto_convert).
 */
import { type Reason, reasonWords } from '../../formats/reason.js';

/** Words of each kind in reports. */
const words = {
  /** Programs read its bytes directly. */
  parameter: 'parameter',
  /** Listed by the tools for this architecture. */
  architecture: 'architecture',
} as const;

/** A reason that only diffusion models have. */
export interface DiffusionReason {
  /** A parameter by itself, or a tensor that the tools keep for this architecture. */
  readonly kind: keyof typeof words;
}

/** The words of such a reason; undefined for others. */
export const diffusionReasonText = reasonWords(words);

export const parameterReason: Reason = { kind: 'parameter' } satisfies DiffusionReason;
export const architectureReason: Reason = { kind: 'architecture' } satisfies DiffusionReason;
