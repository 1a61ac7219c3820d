import { byId } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { openModelFiles } from '../shared/files.js';
import { messageOf, showProblem } from '../shared/problems.js';
import { siteRoot, startSite } from '../shared/site.js';
import { startModelPanel } from './panel.js';

startSite();
const panel = startModelPanel(() => {});
const picker = byId('file', HTMLInputElement);

async function open(files: readonly File[]): Promise<void> {
  try {
    const model = await openModelFiles(files);
    if (model === undefined) throw new TypeError('This is no model file.');
    showProblem('file');
    panel.open(model);
  } catch (error) {
    showProblem('file', { title: 'That cannot be read here', text: messageOf(error) });
  }
}

startDropping((files) => void open(files));
byId('choose', HTMLButtonElement).addEventListener('click', () => picker.click());
picker.addEventListener('change', () => void open([...(picker.files ?? [])]).finally(() => (picker.value = '')));
byId('sample', HTMLButtonElement).addEventListener('click', async () => {
  const response = await fetch(new URL('samples/digits.safetensors', siteRoot));
  void open([new File([await response.arrayBuffer()], 'digits.safetensors')]);
});
