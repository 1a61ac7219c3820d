import { byId, onResize, onTheme } from '../dom.js';
import { html, render, type TemplateResult } from '../template.js';
import type { DrawPart, FigureState } from './state.js';

/** Size of a figure in pixels. */
export interface FigureSize {
  readonly width: number;
  readonly height: number;
}

/** A figure as drawn. */
interface DrawnFigure {
  readonly picture: TemplateResult;
  /** Place of the handle. */
  readonly handle: { readonly x: number; readonly y: number };
  /** The sentence beside the figure. */
  readonly words: string;
  /** The value of the handle in words. The default is `words`. */
  readonly value?: string;
}

/** A picture with a handle that the visitor drags along the horizontal axis, by pointer or keyboard. */
export interface Figure {
  /** Its element is `fig-NAME`, that of its sentence `fig-NAME-words`. */
  readonly name: string;
  /** Name of the handle. */
  readonly label: string;
  readonly min: number;
  readonly max: number;
  /** Change of the value with one press of an arrow key. */
  readonly step: number;
  /** The values that it shows, beside the core. The handle sets the first. */
  readonly uses: readonly [keyof FigureState, ...(keyof FigureState)[]];
  /** The value at a position, in pixels. */
  valueAt(x: number, size: FigureSize): number;
  /** The nearest value that the handle can take. The default takes all. */
  snap?(value: number): number;
  draw(state: FigureState, size: FigureSize, set: SetFigure): DrawnFigure;
}

/** Changes the values of figures. */
export type SetFigure = (change: Partial<FigureState>) => void;

/** Steps of the keys. */
const keySteps: Readonly<Record<string, number>> = {
  ArrowLeft: -1,
  ArrowDown: -1,
  ArrowRight: 1,
  ArrowUp: 1,
  PageDown: -5,
  PageUp: 5,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};

/** Size of an element in pixels, of at least 200 × 80. */
export function sizeOf(node: Element): FigureSize {
  const { width, height } = node.getBoundingClientRect();
  return { width: Math.max(200, Math.round(width)), height: Math.max(80, Math.round(height)) };
}

/** Sets up a figure, and returns how it is drawn after a change. The whole figure takes the pointer, so that fingers find the handle. */
export function startFigure(figure: Figure, set: SetFigure, current: () => FigureState): DrawPart<FigureState> {
  const { name, label, min, max, step, uses, snap = (value) => value } = figure;
  const [box, sentence] = [byId(`fig-${name}`, HTMLElement), byId(`fig-${name}-words`, HTMLElement)];
  const move = (value: number) => set({ [uses[0]]: snap(Math.max(min, Math.min(max, value))) });
  const drag = ({ clientX }: PointerEvent) =>
    move(figure.valueAt(clientX - box.getBoundingClientRect().left, sizeOf(box)));
  const grab = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const node = event.currentTarget as Element;
    node.setPointerCapture(event.pointerId);
    node.querySelector<SVGElement>('.handle')?.focus({ preventScroll: true });
    drag(event);
  };
  const follow = (event: PointerEvent) => {
    if ((event.currentTarget as Element).hasPointerCapture(event.pointerId)) drag(event);
  };
  const press = (event: KeyboardEvent) => {
    const steps = keySteps[event.key];
    if (steps === undefined) return;
    event.preventDefault();
    const value = Number(current()[uses[0]]);
    move(Number.isFinite(steps) ? value + steps * step : steps);
  };
  const draw = (state: FigureState) => {
    const size = sizeOf(box);
    const { picture, handle, words, value = words } = figure.draw(state, size, set);
    // Only the handle has a name: that of a picture would show as a tooltip.
    render(
      html`<svg viewBox="0 0 ${size.width} ${size.height}" @pointerdown=${grab} @pointermove=${follow}>
        ${picture}
        <g class="handle" role="slider" tabindex="0" aria-label=${label} aria-valuemin=${min} aria-valuemax=${max} @keydown=${press}
          aria-valuenow=${Number(Number(state[uses[0]]).toPrecision(4))} aria-valuetext=${value} transform="translate(${handle.x.toFixed(1)} ${handle.y.toFixed(1)})">
          <circle class="halo" r="18" /><circle class="knob" r="9" /><path d="M-6 0H6M-3.5-2.5-6 0l2.5 2.5M3.5-2.5 6 0 3.5 2.5" />
        </g>
      </svg>`,
      box,
    );
    render(words, sentence);
  };
  onResize(box, () => draw(current()));
  if (uses.includes('theme')) onTheme(box, () => set({ theme: current().theme + 1 }));
  return (state, before) => {
    if (before === undefined || ['core' as const, ...uses].some((each) => state[each] !== before[each])) draw(state);
  };
}

/** Heights of a histogram, from 0 to 1. */
export function histogram(values: ArrayLike<number>, low: number, high: number, count: number): number[] {
  const bins = new Array<number>(count).fill(0);
  for (let i = 0; i < values.length; i++) {
    const bin = Math.floor((((values[i] as number) - low) / (high - low)) * count);
    if (bin >= 0 && bin < count) bins[bin]!++;
  }
  const highest = Math.max(...bins, 1);
  return bins.map((bin) => bin / highest);
}

/** Bars as one path. */
export function barPath(
  heights: readonly number[],
  at: (share: number) => number,
  ground: number,
  room: number,
): string {
  let d = `M${at(0).toFixed(1)} ${ground}`;
  heights.forEach((height, i) => {
    d += `V${(ground - height * room).toFixed(1)}H${at((i + 1) / heights.length).toFixed(1)}`;
  });
  return `${d}V${ground}Z`;
}

/** Vertical lines as one path. */
export const linesPath = (xs: readonly number[], top: number, bottom: number): string =>
  xs.map((x) => `M${x.toFixed(1)} ${top}V${bottom}`).join('');
