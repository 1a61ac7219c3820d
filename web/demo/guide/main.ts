import { copy } from '../shared/copy.js';
import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { startSite } from '../shared/site.js';

/** Makes the buttons beside code copy it. */
function startCopying(): void {
  for (const button of document.querySelectorAll<HTMLButtonElement>('.copy')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      const code = button.parentElement?.querySelector('code')?.textContent ?? '';
      void copy(`${code.trimEnd()}\n`, 'Code');
    });
  }
}

startSite();
startCopying();
startDroppingElsewhere();
