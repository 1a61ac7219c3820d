import { byId } from './dom.js';
import { recall, remember } from './remember.js';

const themes = ['system', 'light', 'dark'];

/** Sets up the choice of a theme. The default follows the system; another choice is stored. */
export function startTheme(): void {
  const select = byId('theme', HTMLSelectElement);
  const apply = (theme: string) => {
    select.value = theme;
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const theme = recall('theme');
  apply(themes.includes(theme) ? theme : 'system');
  select.addEventListener('change', () => {
    apply(select.value);
    remember('theme', select.value === 'system' ? '' : select.value);
  });
}
