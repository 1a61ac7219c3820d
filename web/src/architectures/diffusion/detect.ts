/**
 * Recognizes checkpoints of diffusion models, and names the programs that read their GGUF files and the reasons of the tools of ComfyUI-GGUF to
 * keep tensors.
 * Reference: github.com/city96/ComfyUI-GGUF, tools/convert.py at 4dfc025 (branch auto_convert).
 */
import type { Reader, SourceTensor } from '../../formats/format.js';
import { type Reason, reasonWords } from '../../formats/reason.js';
import {
  architectureWith,
  type DiffusionArchitecture,
  diffusersArchitecture,
  diffusionArchitectures,
  diffusionPrefix,
} from '../../formats/safetensors/diffusion.js';

/** A tensor with its name in the result. */
export interface Named<T> {
  readonly name: string;
  readonly tensor: T;
}

/** The tensors of the diffusion model, without the prefix of checkpoints that bundle it with others. */
export function withoutPrefix<T extends { readonly name: string }>(tensors: readonly T[]): readonly Named<T>[] {
  const prefix = diffusionPrefix(tensors);
  return tensors
    .filter(({ name }) => name.startsWith(prefix))
    .map((tensor) => ({ name: tensor.name.slice(prefix.length), tensor }));
}

const diffusionNames = (tensors: readonly SourceTensor[]) => new Set(withoutPrefix(tensors).map(({ name }) => name));

/** Architecture of a checkpoint; undefined for anything but a known diffusion model. */
export function detectDiffusion(tensors: readonly SourceTensor[]): DiffusionArchitecture | undefined {
  return architectureWith(diffusionNames(tensors));
}

/** Architecture of a checkpoint in the layout of diffusers that gets other names in GGUF. UNets keep theirs, as ComfyUI-GGUF does. */
export function diffusersLayout(tensors: readonly SourceTensor[]): DiffusionArchitecture | undefined {
  const name = diffusersArchitecture(diffusionNames(tensors));
  return diffusionArchitectures.find((architecture) => architecture.name === name);
}

/** Programs that read the files of an architecture; undefined for other architectures than those of diffusion models. */
export function diffusionReaders(architecture: string, file: string): readonly Reader[] | undefined {
  if (!diffusionArchitectures.some(({ name }) => name === architecture)) return undefined;
  return [
    {
      program: 'ComfyUI',
      code: `mv ${file} ComfyUI/models/diffusion_models/`,
      needs: 'It needs the extension ComfyUI-GGUF, whose node Unet Loader (GGUF) loads the file.',
    },
    { program: 'stable-diffusion.cpp', code: `sd --diffusion-model ${file} -p "A cat"` },
  ];
}

/** Words of reasons that formats do not share. */
const reasonKinds = {
  /** Programs read its bytes directly. */
  parameter: 'a parameter',
  /** Listed by the tools for this architecture. */
  architecture: 'kept in floats',
} as const;

/** A reason that only diffusion models have. */
export interface DiffusionReason {
  /** A parameter by itself, or a tensor that the tools keep for this architecture. */
  readonly kind: keyof typeof reasonKinds;
}

/** The words of such a reason; undefined for others. */
export const diffusionReasonText = reasonWords(reasonKinds);

export const parameterReason: Reason = { kind: 'parameter' } satisfies DiffusionReason;
export const architectureReason: Reason = { kind: 'architecture' } satisfies DiffusionReason;
