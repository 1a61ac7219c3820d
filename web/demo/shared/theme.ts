import { byId } from './dom.js';

const key = 'scalepoint-theme';
const themes = ['system', 'light', 'dark'];

/** The theme that was stored, if any. Storage may be forbidden; the page works without it. */
function remembered(): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(theme: string): void {
  try {
    if (theme === 'system') localStorage.removeItem(key);
    else localStorage.setItem(key, theme);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
}

/** Sets up the choice of a theme. The default follows the system; another choice is stored. */
export function startTheme(): void {
  const select = byId('theme', HTMLSelectElement);
  const apply = (theme: string) => {
    select.value = theme;
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const theme = remembered();
  apply(theme !== null && themes.includes(theme) ? theme : 'system');
  select.addEventListener('change', () => {
    apply(select.value);
    remember(select.value);
  });
}
