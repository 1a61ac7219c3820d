/**
 * The layout of compressed-tensors, which vLLM, transformers and llama.cpp's converter load: integers or float8 with scales.
 * Reference: github.com/vllm-project/compressed-tensors at ac8e2ba8.
 */
import type { CastType } from '../../../codecs/cast.js';
import { tileElements } from '../../../codecs/codec.js';
import {
  type CompressedForm,
  canWeighCompressedTensors,
  codesPerUnit,
  rowsPerWord,
  spareBits,
  wordsOf,
} from '../../../codecs/compressed-tensors.js';
import { elementsOf } from '../../../codecs/elements.js';
import type { LogicalTensor, SourceTensor } from '../../../format.js';
import { elementCount } from '../../../tensors.js';
import { linearOnly } from '../../keep.js';
import { hasByteCodes, hereReader } from '../../options.js';
import { codesOf, integersOf } from '../../targets.js';
import type { CodedLayout, LayoutPlan, LayoutStart, Weighing, WeightToStore } from '../layout.js';
import { compressedScheme, describe } from './describe.js';
import { statedBits } from './groups.js';
import { notesOnReaders } from './notes.js';
import { verifyCompressed } from './verify.js';

/**
 * True if codes can be cut into tiles for every target. Rows that share words of zero points stay together, and groups of both sides must
 * end at the same columns.
 */
function canBeCut({ shape, form }: LogicalTensor): boolean {
  const its = form as CompressedForm;
  const { packed, symmetric, wholeWords, grouped, groupSize = 1 } = its;
  if (elementsOf(shape.slice(1)) * rowsPerWord(its) <= tileElements) return true;
  return (!packed || symmetric) && !wholeWords && !grouped && tileElements % groupSize === 0;
}

const weighing: Weighing = {
  takes: (shape, form) => canWeighCompressedTensors(shape, form as CompressedForm),
  add: (form, importance): CompressedForm => ({ ...(form as CompressedForm), range: 'mse', importance }),
};

function planCompressed({ tensors, choices, isModel }: LayoutStart): LayoutPlan {
  const { scheme = 'symmetric', range = 'min-max', include } = choices;
  const hasBytes = hasByteCodes(choices);
  const forms = new Map<string, CompressedForm>();
  const newForm = (to: string, dtype: string, groupSize: number | undefined): CompressedForm => {
    const codes = codesOf(to);
    const float = codes?.kind === 'floats';
    return {
      codec: 'compressed-tensors',
      type: float ? 'float' : 'int',
      bits: integersOf(to)?.bits ?? 8,
      symmetric: scheme === 'symmetric' || float,
      groupSize,
      packed: !float && !hasBytes,
      scale: dtype === 'F64' ? 'F32' : (dtype as CastType),
      ...(range === 'min-max' || float ? {} : { range }),
    };
  };
  /** The last form with its key. Consecutive tensors often share one. */
  let last: { readonly to: string; readonly dtype: string; readonly form: CompressedForm } | undefined;
  const formOf = ({ to, dtype }: WeightToStore, groupSize: number | undefined) => {
    if (last?.to === to && last.dtype === dtype && last.form.groupSize === groupSize) return last.form;
    const key = `${to} ${dtype} ${groupSize}`;
    const form = forms.get(key) ?? newForm(to, dtype, groupSize);
    forms.set(key, form);
    last = { to, dtype, form };
    return form;
  };
  const isInteger = [choices.to, ...(choices.rules ?? []).map(({ to }) => to)].some((to) => integersOf(to));
  return {
    ...(isModel && include !== 'all' ? { notLinear: linearOnly(tensors) } : {}),
    groupSizes: (to) => (hasBytes ? [] : (integersOf(to)?.groupSizes ?? [])),
    formOf,
    weighing: isInteger ? weighing : undefined,
    sidecars(planned) {
      const { activations } = choices;
      const value = describe(planned, compressedScheme(activations), { activations, version: '0.11.0' });
      return value === undefined ? [] : [{ option: 'config', value }];
    },
    notes: (planned) => notesOnReaders(planned, choices),
  };
}

export const compressedTensorsLayout: CodedLayout = {
  label: 'compressed-tensors',
  codecs: ['compressed-tensors'],
  async find(model) {
    const hasCodes = ({ dtype, name }: SourceTensor) => /^(I8|F8_E4M3)$/.test(dtype) || name.endsWith('_packed');
    if (!model.tensors.some(hasCodes)) return { weights: [] };
    const { findCompressed } = await import('../../../on-demand.js');
    const tools = { codesPerUnit, spareBits, wordsOf, elementsIn: elementCount, bitsIn: statedBits };
    return findCompressed(model, tools);
  },
  floats: (form) => (form as CompressedForm).scale,
  canBeCut,
  quantMethods: ['compressed-tensors'],
  verify: verifyCompressed,
  writer: {
    stores: ['integers', 'floats'],
    plan: planCompressed,
    readers(_to, file) {
      const needs = "Save config.json into the model's folder as well, in place of the one there.";
      return [{ program: 'vLLM', code: 'vllm serve ./FOLDER', needs }, hereReader(file)];
    },
  },
};
