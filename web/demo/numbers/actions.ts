import { copy, download } from '../shared/copy.js';
import { byId } from '../shared/dom.js';
import { messageOf, showProblem } from '../shared/problems.js';
import type { Client } from './client.js';
import { snippet } from './snippet.js';
import type { State } from './state.js';

/** Sets up the buttons that copy the code, copy a link and download the packed codes. */
export function startActions(client: Client, state: State): void {
  byId('copy', HTMLButtonElement).addEventListener('click', () => {
    if (state.view !== undefined) void copy(snippet(state.view.data, state.settings), 'Code');
  });
  byId('link', HTMLButtonElement).addEventListener('click', () => void copy(location.href, 'Link'));
  byId('download', HTMLButtonElement).addEventListener('click', async () => {
    try {
      const own = state.settings.data === 'own' ? state.own?.id : undefined;
      const { bytes, name } = await client.call('pack', { settings: state.settings, own });
      download(new Blob([bytes]), name);
    } catch (error) {
      showProblem('settings', { title: 'There is nothing to save', text: `${messageOf(error)}.` });
    }
  });
}
