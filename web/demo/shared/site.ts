import type { Scalepoint } from 'scalepoint';
import { byId, setText } from './dom.js';
import { watchScrollBoxes } from './scroll.js';
import { startTheme } from './theme.js';

/** The address of the site's front page. Read once, since moving to another page within this document changes the base of relative links. */
export const siteRoot = new URL(document.documentElement.dataset.root ?? './', document.baseURI);

/** Delay before the files for offline visits are fetched, so that they do not compete with the files of the page. */
const offlineDelay = 2000;

/** Fetches the files for visits without a network, and says so when they are there. */
async function prepareOffline(): Promise<void> {
  // Storage and workers may be forbidden. The site works without them.
  try {
    const { serviceWorker } = navigator;
    await serviceWorker.register(new URL('offline.js', siteRoot));
    await serviceWorker.ready;
    setText(byId('about-offline', HTMLElement), 'Works offline from now on.');
  } catch {}
}

/** Sets up the common parts of all pages: the theme, boxes that scroll, the link to the content, offline visits. */
export function startSite(): void {
  startTheme();
  watchScrollBoxes(document);
  byId('skip', HTMLAnchorElement).addEventListener('click', (event) => {
    // The hash of the address holds the settings, so the link must not change it.
    event.preventDefault();
    (document.getElementById('result') ?? byId('main', HTMLElement)).focus();
  });
  if (navigator.serviceWorker !== undefined) setTimeout(() => void prepareOffline(), offlineDelay);
}

/** Facts about the core in the footer. */
export type CoreFacts = Pick<Scalepoint, 'version' | 'simd' | 'buildId'>;

/** Names the version and the build of the core in the footer. */
export function showCore({ version, simd, buildId }: CoreFacts): void {
  setText(byId('about-version', HTMLElement), version);
  setText(
    byId('about-tier', HTMLElement),
    ` (build ${buildId.toString(16)}), ${simd ? 'SIMD core' : 'scalar core, as this browser has no WebAssembly SIMD'}`,
  );
}
