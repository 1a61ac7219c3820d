/** The layouts of GPTQ and AWQ, which loaders of every age read. */
import type { GptqForm } from '../../../codecs/gptq.js';
import { canCutGptq, findGptq } from './gptq-find.js';
import type { CodedLayout } from './layout.js';

export const gptqLayout: CodedLayout = {
  label: 'GPTQ or AWQ',
  codecs: ['gptq'],
  quantMethods: ['gptq', 'awq'],
  find: findGptq,
  floats: (form) => (form as GptqForm).scale,
  canBeCut: canCutGptq,
};
