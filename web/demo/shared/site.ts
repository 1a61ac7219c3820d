import type { Scalepoint } from 'scalepoint';
import { simd as hasSimd } from 'wasm-feature-detect';
import { byId, setText } from './dom.js';
import { watchScrollBoxes } from './scroll.js';
import { startTheme } from './theme.js';

/** The address of the site's front page. Read once, since moving to another page within this document changes the base of relative links. */
export const siteRoot = new URL(document.documentElement.dataset.root ?? './', document.baseURI);

/** Delay before the files for offline visits are fetched, so that they do not compete with the files of the page. */
const offlineDelay = 2000;

/** The files that this page has used so far. */
const usedFiles = () => [location.href, ...performance.getEntriesByType('resource').map(({ name }) => name)];

/** Stores what was used for visits without a network, and the rest of the site unless the visitor saves data. Says so when it is there. */
async function prepareOffline(): Promise<void> {
  // Storage and workers may be forbidden. The site works without them.
  try {
    const { serviceWorker, connection } = navigator as Navigator & { connection?: { saveData?: boolean } };
    await serviceWorker.register(new URL('offline.js', siteRoot));
    const { active } = await serviceWorker.ready;
    const mayStore = connection?.saveData !== true;
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data: isStored }: MessageEvent<boolean>) => {
      if (!isStored) return;
      const words = mayStore ? 'Works offline from now on.' : 'What you have used works offline.';
      setText(byId('about-offline', HTMLElement), words);
    };
    active?.postMessage({ used: usedFiles(), mayStore }, [port2]);
  } catch {}
}

/** Sets up the common parts of all pages: the theme, boxes that scroll, the link to the content, offline visits. */
export function startSite(): void {
  startTheme();
  // Without WebAssembly there is no core, which the page says.
  hasSimd().then(showTier, () => {});
  watchScrollBoxes(document);
  // The build may not know the address of the site.
  for (const node of document.querySelectorAll<HTMLElement>('[data-here]')) {
    setText(
      node,
      (node.textContent ?? '').replace(/(^| )\.\//, (_, blank: string) => blank + siteRoot.href),
    );
  }
  byId('skip', HTMLAnchorElement).addEventListener('click', (event) => {
    // The hash of the address holds the settings, so the link must not change it.
    event.preventDefault();
    (document.getElementById('result') ?? byId('main', HTMLElement)).focus();
  });
  if (navigator.serviceWorker !== undefined) setTimeout(() => void prepareOffline(), offlineDelay);
}

/** Names the tier that this browser takes in the footer. */
function showTier(simd: boolean): void {
  setText(
    byId('about-tier', HTMLElement),
    simd ? ', SIMD core' : ', scalar core, as this browser has no WebAssembly SIMD',
  );
}

/** Facts about the core in the footer. */
export type CoreFacts = Pick<Scalepoint, 'version' | 'simd' | 'buildId'>;

/** Names the version, the build and the tier of the loaded core in the footer. */
export function showCore({ version, simd, buildId }: CoreFacts): void {
  setText(byId('about-version', HTMLElement), version);
  setText(byId('about-build', HTMLElement), buildId.toString(16));
  showTier(simd);
}
