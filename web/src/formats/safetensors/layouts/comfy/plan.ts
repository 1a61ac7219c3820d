/** Plans files for ComfyUI: the names of their tensors, and which weights get codes. */

import { type Note, noteOf } from '../../../../core/note.js';
import { tileElements } from '../../../codecs/codec.js';
import type { ComfyForm, ComfyFormat, comfyGroup } from '../../../codecs/comfy.js';
import type { PlannedTensor } from '../../../format.js';
import { type Reason, rankReason, reasons } from '../../../reason.js';
import { originalModel } from '../../diffusers.js';
import type { comfyFormatOf } from '../../targets.js';
import type { LayoutPlan, LayoutStart, PlanLayout, WeightToStore } from '../layout.js';
import { comfyModel } from './models.js';

/** Functions that are passed in, because bundlers would make further files if this module, which is loaded on demand, imported them. */
export interface ComfyTools {
  readonly formatOf: typeof comfyFormatOf;
  readonly groupOf: typeof comfyGroup;
}

/** Plans results. */
export function comfyPlanner(tools: ComfyTools): PlanLayout {
  return (start) => planComfy(start, tools);
}

const measured: Reason = { kind: 'measured' };

/** Reason why codes of a format cannot hold a tensor. */
function obstacleTo(
  { name, shape }: WeightToStore['source'],
  format: ComfyFormat,
  unit: number | undefined,
): Reason | undefined {
  const [rows = 0, columns = 0] = shape;
  if (shape.length !== 2) return rankReason(shape.length);
  if (!name.endsWith('.weight')) return reasons.notWeight;
  // Loaders expect both sides padded to this multiple, which needs no padding here. ComfyUI: group sizes of quant_ops.py.
  if (unit === undefined) {
    return format === 'int8_tensorwise' && columns > tileElements ? { kind: 'longRows', elements: columns } : undefined;
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

function planComfy({ tensors, choices }: LayoutStart, { formatOf: given, groupOf }: ComfyTools): LayoutPlan {
  const original = originalModel(tensors);
  const model = comfyModel(original?.tensors ?? tensors);
  const search = choices.range === 'mse';
  const forms = new Map<ComfyFormat, ComfyForm>();
  const formatOf = (to: string) => given(to) as ComfyFormat;
  return {
    ...(original && { tensors: original.tensors }),
    keptByName: (name) => model.keptByName(name),
    obstacle({ source, to }) {
      const format = formatOf(to);
      return model.isMeasured(source.name, format) ? measured : obstacleTo(source, format, groupOf(format));
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
    notes: (planned) => [...(original ? [original.note] : []), ...notesOf(model.name, planned)],
    // Layers in the metadata would replace the markers.
    metadata: ({ _quantization_metadata: _, ...others }) => others,
  };
}
