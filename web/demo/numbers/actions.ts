import type { Scalepoint } from 'scalepoint';
import { copy, download } from '../shared/copy.js';
import { byId } from '../shared/dom.js';
import { showProblem } from '../shared/problems.js';
import { type DataSet, statisticsOf } from './data.js';
import { quantize } from './evaluate.js';
import { explainQuantizing } from './explain.js';
import { dtypeOf, type Settings } from './settings.js';
import { snippet } from './snippet.js';

/** Sets up the buttons that copy the code, copy a link and download the packed codes. */
export function startActions(core: Scalepoint, current: () => { data: DataSet; settings: Settings }): void {
  byId('copy', HTMLButtonElement).addEventListener('click', () => {
    const { data, settings } = current();
    void copy(snippet(data, settings), 'Code');
  });
  byId('link', HTMLButtonElement).addEventListener('click', () => void copy(location.href, 'Link'));
  byId('download', HTMLButtonElement).addEventListener('click', () => {
    const { data, settings } = current();
    try {
      const packed = core.pack(quantize(core, data.values, settings, data.shape));
      download(new Blob([Uint8Array.from(packed)]), `${data.stem}.${dtypeOf(settings)}.bin`);
    } catch (error) {
      showProblem('settings', explainQuantizing(error, statisticsOf(data.values)));
    }
  });
}
