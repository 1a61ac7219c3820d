import { byId, onResize, svg } from '../dom.js';
import type { DrawPart, FigureState } from './state.js';

/** Something in a figure that is dragged along the horizontal axis, by pointer or keyboard. */
export interface Handle {
  readonly node: SVGGElement;
  /** Puts it somewhere and says its value. */
  place(x: number, y: number, value: number, words: string): void;
}

/** Value and callbacks of a handle. */
export interface HandleOptions {
  readonly label: string;
  readonly min: number;
  readonly max: number;
  /** Change of the value with one press of an arrow key. */
  readonly step: number;
  /** The value at a position, in pixels of the figure. */
  valueAt(x: number): number;
  current(): number;
  onChange(value: number): void;
}

/** Makes a handle. The whole figure takes the pointer, so that fingers find it. */
export function makeHandle(figure: SVGSVGElement, options: HandleOptions): Handle {
  const { label, min, max, step, valueAt, current, onChange } = options;
  // Draw the handle, a slider for assistive technology.
  const node = svg('g', { class: 'handle', role: 'slider', tabindex: 0, 'aria-label': label });
  node.append(
    svg('circle', { class: 'halo', r: 18 }),
    svg('circle', { class: 'knob', r: 9 }),
    svg('path', { d: 'M-6 0H6M-3.5-2.5-6 0l2.5 2.5M3.5-2.5 6 0 3.5 2.5' }),
  );
  node.setAttribute('aria-valuemin', String(min));
  node.setAttribute('aria-valuemax', String(max));
  const set = (value: number) => onChange(Math.max(min, Math.min(max, value)));
  const drag = (event: PointerEvent) => set(valueAt(event.clientX - figure.getBoundingClientRect().left));
  // Follow the pointer.
  figure.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    figure.setPointerCapture(event.pointerId);
    node.focus({ preventScroll: true });
    drag(event);
  });
  figure.addEventListener('pointermove', (event) => {
    if (figure.hasPointerCapture(event.pointerId)) drag(event);
  });
  // Follow the keys.
  node.addEventListener('keydown', (event) => {
    const steps: Readonly<Record<string, number>> = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -5,
      PageUp: 5,
      Home: Number.NEGATIVE_INFINITY,
      End: Number.POSITIVE_INFINITY,
    };
    const count = steps[event.key];
    if (count === undefined) return;
    event.preventDefault();
    set(Number.isFinite(count) ? current() + count * step : count < 0 ? min : max);
  });
  return {
    node,
    place(x, y, value, words) {
      node.setAttribute('transform', `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      node.setAttribute('aria-valuenow', String(Number(value.toPrecision(4))));
      node.setAttribute('aria-valuetext', words);
    },
  };
}

/** Puts a picture into an element. Only its handle has a name: the name of a picture would show as a tooltip. */
export function figureIn(id: string): SVGSVGElement {
  const figure = svg('svg', {});
  byId(id, HTMLElement).append(figure);
  return figure;
}

/** Size of a figure in pixels. */
export function sizeOf(figure: SVGSVGElement): { width: number; height: number } {
  const { width, height } = figure.getBoundingClientRect();
  const size = { width: Math.max(200, Math.round(width)), height: Math.max(80, Math.round(height)) };
  figure.setAttribute('viewBox', `0 0 ${size.width} ${size.height}`);
  return size;
}

/** Draws a figure again after a change of its size, of the core, or of one of the named values. */
export function drawnFor(
  figure: SVGSVGElement,
  draw: (state: FigureState) => void,
  current: () => FigureState,
  ...names: readonly (keyof FigureState)[]
): DrawPart<FigureState> {
  onResize(figure, () => draw(current()));
  return (state, before) => {
    const all = ['core', ...names] as const;
    if (before === undefined || all.some((name) => state[name] !== before[name])) draw(state);
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
