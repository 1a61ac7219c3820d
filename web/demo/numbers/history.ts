import { recall, remember } from '../shared/remember.js';
import { formatHash, parseHash, type Settings } from './settings.js';

/** Changes of one control that follow each other within this time make a single history entry. */
const stepMilliseconds = 1500;

/** Stores the settings in the address. */
export interface AddressBar {
  /** Writes settings to the address. Adds a history entry, or replaces the current one if the same control changed just before. */
  commit(settings: Settings, control: string): void;
}

/** The settings of the address, or else those of the last visit, which the address then names. */
export function firstSettings(): Settings {
  const kept = recall('numbers');
  if (location.hash === '' && kept !== '') history.replaceState(history.state, '', `#${kept}`);
  return parseHash(location.hash);
}

/** Sets up the address bar. Going back and forward calls `onNavigate` with the settings of that address. */
export function startAddress(onNavigate: (settings: Settings) => void): AddressBar {
  let lastControl = '';
  let lastTime = Number.NEGATIVE_INFINITY;
  addEventListener('popstate', () => {
    lastControl = '';
    onNavigate(parseHash(location.hash));
  });
  return {
    commit(settings, control) {
      const hash = formatHash(settings);
      remember('numbers', formatHash({ ...settings, data: 'generated' }));
      if (hash === location.hash.replace(/^#/, '')) return;
      const now = performance.now();
      const same = control === lastControl && now - lastTime < stepMilliseconds;
      lastControl = control;
      lastTime = now;
      // An empty address would keep the old hash, so an address without hash is written in full.
      const address = hash === '' ? `${location.pathname}${location.search}` : `#${hash}`;
      if (same) history.replaceState(null, '', address);
      else history.pushState(null, '', address);
    },
  };
}
