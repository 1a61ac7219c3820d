/** Compares weights of MLX with their configuration. */

import { show } from '../../../../core/show.js';
import { type MicroscaledForm, microscaledBlock } from '../../../codecs/microscaled.js';
import type { MlxForm } from '../../../codecs/mlx.js';
import type { Finding, LogicalTensor } from '../../../format.js';
import { isFields } from '../../stored-model.js';
import { problemFound } from '../findings.js';
import type { Fields } from '../layout.js';

/** The settings that describe a form. */
function settingsOf(form: MlxForm | MicroscaledForm) {
  if (form.codec === 'mlx') return { bits: form.bits, group_size: form.groupSize };
  return { bits: form.kind === 'mxfp8' ? 8 : 4, group_size: microscaledBlock(form.kind), mode: form.kind };
}

/** Findings for entries that contradict the weights. */
export function verifyMlx(coded: readonly LogicalTensor[], quantization: Fields): Finding[] {
  const found: Finding[] = [];
  const modules = new Map(coded.map((tensor) => [tensor.name.replace(/\.weight$/, ''), tensor]));
  for (const [module, { name, form }] of modules) {
    const given = quantization[module];
    const stated = isFields(given) ? given : quantization;
    for (const [key, actual] of Object.entries(settingsOf(form as MlxForm | MicroscaledForm))) {
      if (stated[key] === actual || stated[key] === undefined) continue;
      const text = `config.json says ${key} ${show(stated[key])}, but it is ${actual}`;
      found.push(problemFound('configDiffers', text, { tensor: name, key, stated: stated[key], actual }));
    }
  }
  // mlx-lm fails where it finds settings of a module without codes.
  for (const [module, given] of Object.entries(quantization)) {
    if (!isFields(given) || modules.has(module)) continue;
    found.push(problemFound('noCodesOfModule', `config.json has settings for ${show(module)}, which has no codes`));
  }
  return found;
}
