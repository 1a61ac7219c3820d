/** Why the tools of ComfyUI-GGUF keep tensors, beyond the reasons that several formats have. */
import { type Reason, reasonWords } from '../../formats/reason.js';

/** What reports say of each kind. */
const words = {
  /** Programs take its bytes as they are. */
  parameter: 'parameter',
  /** The tools name it for this architecture. */
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
