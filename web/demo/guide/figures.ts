import type { Scalepoint } from 'scalepoint';
import { html } from '../shared/dom.js';
import { type DrawPart, type FigureState, initialFigures, type StartFigure } from '../shared/figures/state.js';
import { explainLoading } from '../shared/problems.js';
import { createStore } from '../shared/store.js';

/** The figures, each in a file of its own, since most pages have one or two. */
const figures: Readonly<Record<string, () => Promise<StartFigure>>> = {
  round: async () => (await import('../shared/figures/round.js')).startRound,
  scale: async () => (await import('../shared/figures/scale.js')).startScale,
  outlier: async () => (await import('../shared/figures/outlier.js')).startOutlier,
  groups: async () => (await import('../shared/figures/groups.js')).startGroups,
  codes: async () => (await import('../shared/figures/codes.js')).startCodes,
  'zero-point': async () => (await import('../shared/figures/zero-point.js')).startZeroPoint,
  'minus-zero': async () => (await import('../shared/figures/minus-zero.js')).startMinusZero,
  arithmetic: async () => (await import('../shared/figures/arithmetic.js')).startArithmetic,
};

/** Figures that need no core. */
const withoutCore = new Set(['round']);

/** Says at each figure that needs the core why it cannot be computed, and what to do. */
function showFailure(error: unknown): void {
  const { text } = explainLoading(error);
  for (const node of document.querySelectorAll<HTMLElement>('[data-figure]')) {
    if (withoutCore.has(node.dataset.figure ?? '')) continue;
    const again = html('button', { type: 'button', class: 'small' }, 'Load again');
    again.addEventListener('click', () => location.reload());
    node.append(
      html(
        'p',
        { class: 'problem', role: 'alert' },
        `This figure computes, and the core did not load. ${text} `,
        again,
      ),
    );
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
    const start = await figures[node.dataset.figure ?? '']?.();
    // A dropped file has replaced the page in the meantime.
    if (!node.isConnected) return;
    const part = start?.(store.set, store.get);
    if (part === undefined) throw new Error(`there is no figure ${node.dataset.figure}`);
    part(store.get(), undefined);
    parts.push(part);
  }
  store.set({ core: await loading });
}
