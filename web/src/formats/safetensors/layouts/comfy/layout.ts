/**
 * The layout of ComfyUI: codes with a marker for each layer, in a file with the names that its loaders know.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/quant_ops.py and comfy/ops.py.
 */
import { tileElements } from '../../../../codecs/codec.js';
import { type ComfyForm, type ComfyFormat, comfyGroup } from '../../../../codecs/comfy.js';
import { type Note, noteOf } from '../../../../core/note.js';
import type { PlannedTensor, Reader } from '../../../format.js';
import { type Reason, rankReason, reasons } from '../../../reason.js';
import { hereReader } from '../../options.js';
import { own } from '../../reasons.js';
import { comfyFormatOf } from '../../targets.js';
import type { CodedLayout, LayoutPlan, LayoutStart, WeightToStore } from '../layout.js';
import { findComfy } from './find.js';
import { comfyModel } from './models.js';

const measured = own({ kind: 'measured' });

/** Reason why codes of a format cannot hold a tensor. */
function obstacleTo({ name, shape }: WeightToStore['source'], format: ComfyFormat): Reason | undefined {
  const [rows = 0, columns = 0] = shape;
  if (shape.length !== 2) return rankReason(shape.length);
  if (!name.endsWith('.weight')) return reasons.notWeight;
  // Loaders expect both sides padded to this multiple, which needs no padding here. ComfyUI: group sizes of quant_ops.py.
  const unit = comfyGroup(format);
  if (unit === undefined) {
    return format === 'int8_tensorwise' && columns > tileElements
      ? own({ kind: 'longRows', elements: columns })
      : undefined;
  }
  const odd = [columns, rows].find((dimension) => dimension % unit !== 0);
  return odd === undefined ? undefined : { kind: 'notDivisible', dimension: odd, by: unit };
}

function notesOf(name: string, planned: readonly PlannedTensor[]): Note[] {
  const some = planned.find(({ form }) => form.codec === 'comfy');
  if (some === undefined) return [];
  const text = `the weights are those of ${name}; ComfyUI reads the file with its own nodes, without an extension`;
  return [noteOf('comfyReaders', { architecture: name }, text)];
}

function planComfy({ tensors, choices }: LayoutStart): LayoutPlan {
  const model = comfyModel(tensors);
  const search = choices.range === 'mse';
  const forms = new Map<ComfyFormat, ComfyForm>();
  const formatOf = (to: string) => comfyFormatOf(to) as ComfyFormat;
  return {
    keptByName: (name) => model.keptByName(name),
    obstacle({ source, to }) {
      const format = formatOf(to);
      return model.isMeasured(source.name, format) ? measured : obstacleTo(source, format);
    },
    groupSizes: () => [],
    formOf({ to }) {
      const format = formatOf(to);
      const searches = search && (format === 'int8_tensorwise' || format === 'nvfp4');
      const form: ComfyForm = forms.get(format) ?? { codec: 'comfy', format, ...(searches ? { search: true } : {}) };
      forms.set(format, form);
      return form;
    },
    sidecars: () => [],
    notes: (planned) => notesOf(model.name, planned),
    // Layers in the metadata would replace the markers.
    metadata: ({ _quantization_metadata: _, ...others }) => others,
  };
}

function readers(_to: string, file: string): readonly Reader[] {
  const needs =
    'The node Load Diffusion Model loads the file. A text encoder belongs into models/text_encoders, for the node Load CLIP; a ' +
    'checkpoint with several models belongs into models/checkpoints, for the node Load Checkpoint.';
  return [{ program: 'ComfyUI', code: `mv ${file} ComfyUI/models/diffusion_models/`, needs }, hereReader(file)];
}

export const comfyLayout: CodedLayout = {
  label: 'ComfyUI',
  codecs: ['comfy'],
  find: findComfy,
  // The file does not tell the type that the weights had. Models of ComfyUI are bfloat16 more often than not.
  floats: () => 'BF16',
  // Tiles of 128 rows are cut into columns where they are long.
  canBeCut: ({ shape, form }) =>
    (form as ComfyForm).format !== 'int8_tensorwise' || (shape[1] as number) <= tileElements,
  writer: { stores: ['comfy'], forKnownModels: true, plan: planComfy, readers },
};
