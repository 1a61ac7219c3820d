import { byId } from './dom.js';

const key = 'scalepoint-theme';
const themes = ['system', 'light', 'dark'];

/** Storage is a convenience: it may be forbidden, and the page works without. */
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
    // The choice holds until the page is left.
  }
}

/** Follows the system's theme unless the visitor chose one, and remembers the choice. */
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
