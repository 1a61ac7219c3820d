/** The layouts of GPTQ and AWQ, which loaders of every age read. */
import { tileElements } from '../../codecs/codec.js';
import { type GptqForm, gptqRowUnit } from '../../codecs/gptq.js';
import type { Reader } from '../../format.js';
import { keeperByName, linearOnly } from '../keep.js';
import { hereReader } from '../options.js';
import { gptqCodesOf } from '../targets.js';
import { canCutGptq, findGptq } from './gptq-find.js';
import type { CodedLayout } from './layout.js';

function readers(_to: string, file: string): readonly Reader[] {
  const needs =
    'FOLDER holds the result as model.safetensors, or its files, with config.json and the files of the tokenizer.';
  const code = 'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("FOLDER")';
  return [
    { program: 'vLLM', code: 'vllm serve ./FOLDER', needs },
    { program: 'transformers', code, needs: 'It needs the package gptqmodel.' },
    hereReader(file),
  ];
}

export const gptqLayout: CodedLayout = {
  label: 'GPTQ or AWQ',
  codecs: ['gptq'],
  quantMethods: ['gptq', 'awq', 'auto-round', 'intel/auto-round'],
  find: findGptq,
  floats: (form) => (form as GptqForm).scale,
  canBeCut: canCutGptq,
  writer: {
    stores: ['gptq'],
    reads: ['config.json'],
    async load() {
      const { gptqPlanner } = await import('../../on-demand.js');
      return gptqPlanner({
        codesOf: gptqCodesOf,
        keeperOf: keeperByName,
        linear: linearOnly,
        rowUnit: gptqRowUnit,
        weighs: ([, columns = 0], form) => columns * gptqRowUnit(form) <= tileElements,
      });
    },
    readers,
  },
};
