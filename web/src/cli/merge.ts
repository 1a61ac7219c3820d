/** The command `merge`: makes one file of a model in several. */
import { makeQuantizeCommand } from './request.js';
import { copyModel, cuttingFlags } from './split.js';
import { wrongFlag } from './wording.js';

export const merge = makeQuantizeCommand((line) =>
  copyModel(line, 'merge', (words) => {
    const cut = [...cuttingFlags(), 'part'].find((name) => words[name] !== undefined);
    if (cut === undefined) return;
    const hint = { kind: 'takenBy', call: 'scalepoint split', name: `--${cut}` } as const;
    throw wrongFlag(cut, { kind: 'absent' }, words[cut], hint);
  }),
);
