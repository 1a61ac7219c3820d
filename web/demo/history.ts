import { formatHash, parseHash, type Settings } from './settings.js';

/** Moves of one control within this time are one step back. */
const stepMilliseconds = 1500;

/** Keeps the address and the settings in step. */
export interface AddressBar {
  /** Writes settings to the address: a new step back, unless the same control was moved a moment ago. */
  commit(settings: Settings, control: string): void;
}

/** Starts to listen to back and forward. */
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
      if (hash === location.hash.replace(/^#/, '')) return;
      const now = performance.now();
      const same = control === lastControl && now - lastTime < stepMilliseconds;
      lastControl = control;
      lastTime = now;
      // An address without `#` has to be spelled out: an empty one would leave the old hash.
      const address = hash === '' ? `${location.pathname}${location.search}` : `#${hash}`;
      if (same) history.replaceState(null, '', address);
      else history.pushState(null, '', address);
    },
  };
}
