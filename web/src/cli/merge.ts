/** The command `merge`: makes one file of a model in several. */
import { makeQuantizeCommand } from './request.js';
import { copyGroups, copyModel, cuttingFlags } from './split.js';
import { wrongFlag } from './wording.js';

export const merge = makeQuantizeCommand({
  about: 'copy several files into one',
  line: () => 'merge FILE [-o OUT]',
  usage: ['merge FILE [-o OUT]'],
  text: () =>
    'Copies a model in several files into one. FILE is the index of safetensors, the first file of a split GGUF model, or ' +
    'the folder that they are in.',
  groups: () =>
    copyGroups(
      ['metadata'],
      'the new file, or a folder; by default a file beside FILE, named after the whole model: model.gguf',
    ),
  examples: () => ['merge model-00001-of-00003.gguf', 'merge model.safetensors.index.json -o model.safetensors'],
  carryOut: (line) =>
    copyModel(line, 'merge', (words) => {
      const cut = [...cuttingFlags(), 'part'].find((name) => words[name] !== undefined);
      if (cut === undefined) return;
      const hint = { kind: 'takenBy', call: 'scalepoint split', name: `--${cut}` } as const;
      throw wrongFlag(cut, { kind: 'absent' }, words[cut], hint);
    }),
});
