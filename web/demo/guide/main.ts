import { copy } from '../shared/copy.js';
import { byId } from '../shared/dom.js';
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

/** Opens the list of pages where it has a column of its own. Only a few browsers show what is in a closed one by a style. */
function startContents(): void {
  const contents = byId('contents', HTMLDetailsElement);
  const wide = matchMedia('(min-width: 52.01rem)');
  const show = () => {
    contents.open = wide.matches;
  };
  wide.addEventListener('change', show);
  show();
}

startSite();
startContents();
startCopying();
startDroppingElsewhere();
if (document.querySelector('[data-figure]') !== null)
  void import('./figures.js').then(({ startFigures }) => startFigures());
