import type { Scalepoint } from 'scalepoint';
import { type Figure, startFigure } from '../shared/figures/figure.js';
import { type DrawPart, type FigureState, initialFigures } from '../shared/figures/state.js';
import { explainLoading } from '../shared/problems.js';
import { createStore } from '../shared/store.js';
import { html, render } from '../shared/template.js';

/** The figures, each in a file of its own, since most pages have one or two. */
const figures: Readonly<Record<string, () => Promise<Figure>>> = {
  round: async () => (await import('../shared/figures/round.js')).round,
  scale: async () => (await import('../shared/figures/scale.js')).scale,
  outlier: async () => (await import('../shared/figures/outlier.js')).outlier,
  groups: async () => (await import('../shared/figures/groups.js')).groups,
  codes: async () => (await import('../shared/figures/codes.js')).codes,
  'zero-point': async () => (await import('../shared/figures/zero-point.js')).zeroPoint,
  'minus-zero': async () => (await import('../shared/figures/minus-zero.js')).minusZero,
  arithmetic: async () => (await import('../shared/figures/arithmetic.js')).arithmetic,
};

/** Figures that need no core. */
const withoutCore = new Set(['round']);

/** Says at each figure that needs the core why it cannot be computed, and what to do. */
function showFailure(error: unknown): void {
  const { text } = explainLoading(error);
  for (const node of document.querySelectorAll<HTMLElement>('[data-figure]')) {
    if (withoutCore.has(node.dataset.figure ?? '')) continue;
    const words = html`<p class="problem" role="alert">This figure computes, and the core did not load. ${text} <button
      type="button" class="small" @click=${() => location.reload()}>Load again</button></p>`;
    render(words, node);
  }
}

/** Loads the core, or shows why it did not load. */
async function loadCore(): Promise<Scalepoint | undefined> {
  try {
    const { load } = await import('scalepoint');
    return await load();
  } catch (error) {
    showFailure(error);
    return undefined;
  }
}

/** Sets up the figures of this page. */
export async function startFigures(): Promise<void> {
  const parts: DrawPart<FigureState>[] = [];
  const store = createStore(initialFigures, (state, before) => {
    for (const part of parts) part(state, before);
  });
  const loading = loadCore();
  for (const node of document.querySelectorAll<HTMLElement>('[data-figure]')) {
    const figure = await figures[node.dataset.figure ?? '']?.();
    // A dropped file has replaced the page in the meantime.
    if (!node.isConnected) return;
    if (figure === undefined) throw new Error(`there is no figure ${node.dataset.figure}`);
    const part = startFigure(figure, store.set, store.get);
    part(store.get(), undefined);
    parts.push(part);
  }
  store.set({ core: await loading });
}
