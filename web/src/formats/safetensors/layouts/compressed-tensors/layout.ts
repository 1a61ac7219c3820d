/**
 * The layout of compressed-tensors, which vLLM, transformers and llama.cpp's converter load: integers or float8 with scales.
 * Reference: github.com/vllm-project/compressed-tensors at ac8e2ba8.
 */
import { type Note, noteOf } from '../../../../core/note.js';
import type { CastType } from '../../../codecs/cast.js';
import { type Form, tileElements } from '../../../codecs/codec.js';
import { type CompressedForm, canWeighCompressedTensors, rowsPerWord } from '../../../codecs/compressed-tensors.js';
import { elementsOf } from '../../../codecs/elements.js';
import type { PlannedTensor, Reader } from '../../../format.js';
import { statisticsNames } from '../../../statistics.js';
import { cutUnitsNotes } from '../../fused.js';
import { linearOnly } from '../../keep.js';
import { hasByteCodes } from '../../options.js';
import { type CodedLayout, type CodedTarget, floatOptions, type SafetensorsChoices } from '../layout.js';
import { describe, quantizationArgs, type Scheme, verifyCompressed } from './config.js';
import { findCompressed } from './find.js';

const codeOptions = ['include', 'config', ...floatOptions];
const integerOptions = ['scheme', 'granularity', 'range', 'packed', ...statisticsNames, ...codeOptions];

const targets = {
  int8: {
    about: '8 bits, in groups',
    kind: 'integers',
    bits: 8,
    groupSizes: [128, 64, 32],
    options: [...integerOptions, 'activations'],
    mixedWith: ['bfloat16'],
    preset: 'balanced',
  },
  int4: {
    about: '4 bits, in groups',
    kind: 'integers',
    bits: 4,
    groupSizes: [128],
    options: integerOptions,
    mixedWith: ['int8', 'bfloat16'],
    preset: 'small',
  },
  float8e4m3fn: {
    about: '8 bits, small floats and a scale for each row',
    kind: 'floats',
    options: codeOptions,
    mixedWith: ['bfloat16'],
  },
} as const satisfies Record<string, CodedTarget>;

/** The scheme of integers and of float8 with a scale for each row; undefined for other forms. */
function schemeFor(form: Form, activations: string | undefined): Scheme | undefined {
  const { codec, type, bits, symmetric, groupSize, packed, range } = form as CompressedForm;
  if (codec !== 'compressed-tensors') return undefined;
  const plain = activations === undefined ? 'naive-quantized' : 'int-quantized';
  const args = {
    num_bits: bits,
    type,
    symmetric,
    strategy: groupSize === undefined ? 'channel' : 'group',
    group_size: groupSize ?? null,
    dynamic: false,
  };
  return {
    key: `${bits} ${groupSize}`,
    format: type === 'float' ? 'float-quantized' : packed ? 'pack-quantized' : plain,
    // Name the closest observer of llm-compressor.
    weights: quantizationArgs(args, range === 'mse' ? 'mse' : 'minmax'),
  };
}

/** Notes about the readers of the codes, where they differ from the usual ones. */
function notesOnReaders(planned: readonly PlannedTensor[], choices: SafetensorsChoices): Note[] {
  const converted = planned.flatMap(({ source, form }) =>
    form.codec === 'compressed-tensors' ? [{ ...source, form: form as CompressedForm }] : [],
  );
  const notes: Note[] = [];
  const note = (kind: string, text: string, weights: typeof converted) =>
    notes.push(noteOf(kind, { tensors: weights.map(({ name }) => name) }, text));
  const notLinear = linearOnly(planned.map(({ source }) => source));
  const special = converted.filter(({ name, shape }) => notLinear(name, shape) !== undefined);
  if (special.length > 0) {
    const become =
      special.length === 1
        ? 'weight of layers that are not linear becomes'
        : 'weights of layers that are not linear become';
    const readers = 'Scalepoint reads them, vLLM, transformers and llama.cpp do not';
    note('codesOfOtherLayers', `${special.length} ${become} codes: ${readers}`, special);
  }
  if (hasByteCodes(choices) && choices.activations === undefined && converted.some(({ form }) => form.type === 'int')) {
    // The converter ignores zero points of codes that are not packed.
    const readers = choices.scheme === 'asymmetric' ? 'transformers' : "transformers and llama.cpp's converter";
    const text = `plain int8 codes are read by ${readers}; vLLM needs packed codes (the default)`;
    notes.push(noteOf('plainCodes', {}, text));
  }
  const rows = converted.filter(
    ({ shape, form: { packed, groupSize } }) => packed && groupSize === undefined && shape.length === 2,
  );
  if (rows.length > 0) {
    const text =
      "packed codes with one scale a row are read by vLLM and transformers; llama.cpp's converter needs groups";
    note('packedRows', text, rows);
  }
  return [...notes, ...cutUnitsNotes(planned)];
}

/** vLLM as the reader of codes that config.json describes. */
export const vllmReader: Reader = {
  program: 'vLLM',
  code: 'vllm serve ./FOLDER',
  needs: "Save config.json into the model's folder as well, in place of the one there.",
};

export const compressedTensorsLayout = {
  label: 'compressed-tensors',
  codecs: ['compressed-tensors'],
  quantMethods: ['compressed-tensors'],
  find: findCompressed,
  verify: verifyCompressed,
  floats: (form) => (form as CompressedForm).scale,
  /** Rows that share words of zero points stay together, and groups of both sides must end at the same columns. */
  canBeCut({ shape, form }) {
    const compressed = form as CompressedForm;
    const { packed, symmetric, wholeWords, grouped, groupSize = 1 } = compressed;
    if (elementsOf(shape.slice(1)) * rowsPerWord(compressed) <= tileElements) return true;
    return (!packed || symmetric) && !wholeWords && !grouped && tileElements % groupSize === 0;
  },
  targets,
  joinsLayers: true,
  readers: () => [vllmReader],
  plan({ tensors, choices, isModel }) {
    const { scheme = 'symmetric', range = 'min-max', include, activations } = choices;
    const isPacked = !hasByteCodes(choices);
    const forms = new Map<string, CompressedForm>();
    /** The last form with its key. Consecutive tensors often share one. */
    let last: { readonly to: string; readonly dtype: string; readonly form: CompressedForm } | undefined;
    return {
      ...(isModel && include !== 'all' ? { notLinear: linearOnly(tensors) } : {}),
      formOf({ to, dtype }, groupSize) {
        if (last?.to === to && last.dtype === dtype && last.form.groupSize === groupSize) return last.form;
        const key = `${to} ${dtype} ${groupSize}`;
        const { kind, bits = 8 }: CodedTarget = targets[to as keyof typeof targets];
        const isFloat = kind === 'floats';
        const form: CompressedForm = forms.get(key) ?? {
          codec: 'compressed-tensors',
          type: isFloat ? 'float' : 'int',
          bits,
          symmetric: scheme === 'symmetric' || isFloat,
          groupSize,
          packed: !isFloat && isPacked,
          scale: dtype === 'F64' ? 'F32' : (dtype as CastType),
          ...(range === 'min-max' || isFloat ? {} : { range }),
        };
        forms.set(key, form);
        last = { to, dtype, form };
        return form;
      },
      weighing: {
        takes: (shape, form) => canWeighCompressedTensors(shape, form as CompressedForm),
        add: (form, importance): CompressedForm => ({ ...(form as CompressedForm), range: 'mse', importance }),
      },
      sidecars(planned) {
        const value = describe(planned, schemeFor, { activations, version: '0.11.0' });
        return value === undefined ? [] : [{ option: 'config', value }];
      },
      notes: (planned) => notesOnReaders(planned, choices),
    };
  },
} satisfies CodedLayout;
