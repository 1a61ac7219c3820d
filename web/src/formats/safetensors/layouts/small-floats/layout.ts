/**
 * Small floats with scales. NVFP4, MXFP4 and MXFP8 are written as compressed-tensors stores them, which vLLM loads; other tools' and float8
 * with scales for blocks or tensors are read.
 */

import { grouped } from '../../../../core/groups.js';
import type { CastType } from '../../../codecs/cast.js';
import type { Form } from '../../../codecs/codec.js';
import {
  canWeighMicroscaled,
  type MicroscaledForm,
  type MicroscaledKind,
  microscaledBlock,
} from '../../../codecs/microscaled.js';
import type { ScaledForm } from '../../../codecs/scaled-elements.js';
import type { PlannedTensor } from '../../../format.js';
import { rankReason } from '../../../reason.js';
import { cutUnitsNotes, joinedMatrix } from '../../fused.js';
import { linearOnly } from '../../keep.js';
import { hereReader } from '../../options.js';
import { microscaledOf } from '../../targets.js';
import { describe, quantizationArgs, type Scheme } from '../compressed-tensors/describe.js';
import type { CodedLayout, LayoutPlan, LayoutStart, Weighing, WeightToStore } from '../layout.js';
import { findSmallFloats } from './find.js';

const weighing: Weighing = {
  takes: canWeighMicroscaled,
  add: (form, importance): MicroscaledForm => ({ ...(form as MicroscaledForm), search: true, importance }),
};

/** Schemes of compressed-tensors. */
const schemes: Readonly<Record<MicroscaledKind, Omit<Scheme, 'key'>>> = {
  nvfp4: schemeOf('nvfp4-pack-quantized', 4, 'tensor_group', 'torch.float8_e4m3fn', 16),
  mxfp4: schemeOf('mxfp4-pack-quantized', 4, 'group', 'torch.uint8', 32),
  mxfp8: schemeOf('mxfp8-quantized', 8, 'group', 'torch.uint8', 32),
};

function schemeOf(format: string, bits: number, strategy: string, scaleType: string, size: number) {
  const args = { num_bits: bits, type: 'float', symmetric: true, strategy, group_size: size, dynamic: false };
  return { format, weights: { ...quantizationArgs(args, 'minmax'), scale_dtype: scaleType } };
}

/** Weights of joined layers get their ranges from each other. */
function withSharedRanges(planned: readonly PlannedTensor[]): readonly PlannedTensor[] {
  const keyOf = ({ source, form }: PlannedTensor) =>
    (form as MicroscaledForm).kind === 'nvfp4' ? joinedMatrix(source.name) : undefined;
  const groups = grouped(planned, keyOf);
  return planned.map((tensor) => {
    const key = keyOf(tensor);
    const others = key === undefined ? [] : (groups.get(key) ?? []).filter((other) => other !== tensor);
    return others.length === 0 ? tensor : { ...tensor, sharesRangeWith: others.map(({ source }) => source) };
  });
}

function planSmallFloats({ tensors, choices, isModel }: LayoutStart): LayoutPlan {
  const search = choices.range === 'mse';
  const forms = new Map<string, MicroscaledForm>();
  return {
    ...(isModel ? { notLinear: linearOnly(tensors) } : {}),
    obstacle({ source: { shape }, to }: WeightToStore) {
      if (shape.length !== 2) return rankReason(shape.length);
      const kind = microscaledOf(to);
      const [, columns = 0] = shape;
      const by = kind === undefined ? 1 : microscaledBlock(kind);
      return columns % by === 0 ? undefined : { kind: 'notDivisible', dimension: columns, by };
    },
    groupSizes: () => [],
    formOf({ to, dtype }) {
      const floats = dtype === 'F64' ? 'F32' : (dtype as CastType);
      const key = `${to} ${floats}`;
      const form = forms.get(key) ?? {
        codec: 'microscaled',
        kind: microscaledOf(to) as MicroscaledKind,
        tool: 'compressed-tensors',
        floats,
        ...(search ? { search } : {}),
      };
      forms.set(key, form);
      return form;
    },
    weighing,
    finish: withSharedRanges,
    sidecars(planned) {
      const scheme = (form: Form): Scheme | undefined => {
        if (form.codec !== 'microscaled') return undefined;
        const { kind } = form as MicroscaledForm;
        return { key: kind, ...schemes[kind] };
      };
      const value = describe(planned, scheme, { version: '0.15.0' });
      return value === undefined ? [] : [{ option: 'config', value }];
    },
    notes: cutUnitsNotes,
  };
}

/** The tool that made a weight. */
function toolOf(form: Form): string {
  if (form.codec === 'scaled-elements') return `${(form as ScaledForm).type === 'I8' ? 'int8' : 'float8'} with scales`;
  const { tool } = form as MicroscaledForm;
  return tool === 'modelopt' ? 'ModelOpt' : tool;
}

export const smallFloatsLayout: CodedLayout = {
  label: 'small floats with scales',
  labelOf: toolOf,
  codecs: ['microscaled', 'scaled-elements'],
  quantMethods: ['compressed-tensors', 'fp8', 'modelopt', 'mxfp4'],
  find: findSmallFloats,
  floats: (form) => (form as MicroscaledForm | ScaledForm).floats,
  writer: {
    stores: ['microscaled'],
    plan: planSmallFloats,
    readers(_to, file) {
      const needs = "Save config.json into the model's folder as well, in place of the one there.";
      return [{ program: 'vLLM', code: 'vllm serve ./FOLDER', needs }, hereReader(file)];
    },
  },
};
