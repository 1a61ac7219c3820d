import { svg } from './dom.js';

/** Size of a label, in pixels. */
export interface LabelSize {
  readonly width: number;
  readonly height: number;
}

/** A label before it has its size. */
export interface Label {
  readonly text: string;
  /** Class of its text element. */
  readonly style?: string;
}

/** Least distance in pixels between two labels of a row. */
export const labelGap = 8;

/**
 * Measures labels in the visitor's font, before a chart is redrawn. Digits are as wide as each other, so labels that differ in their digits only are measured once.
 * @param chart where they will be
 * @param group class of the group that they will be in
 */
export function measureLabels(chart: SVGSVGElement, group: string, labels: readonly Label[]): LabelSize[] {
  const nodes = new Map<string, SVGTextElement>();
  const measured = labels.map(({ text, style = '' }) => {
    const pattern = text.replace(/\d/g, '0');
    const key = `${style} ${pattern}`;
    const node = nodes.get(key) ?? svg('text', { class: style }, pattern);
    nodes.set(key, node);
    return node;
  });
  const box = svg('g', { class: group, visibility: 'hidden' }, ...nodes.values());
  // The view box may still be that of another size, and sizes of letters are rounded after scaling. Redrawing sets the new one.
  chart.removeAttribute('viewBox');
  chart.append(box);
  const sizes = new Map([...nodes.values()].map((node) => [node, node.getBBox()]));
  box.remove();
  return measured.map((node) => sizes.get(node)!);
}

/** Measures labels of one style. */
export const widthsOf = (chart: SVGSVGElement, group: string, texts: readonly string[], style?: string): number[] =>
  measureLabels(
    chart,
    group,
    texts.map((text) => ({ text, ...(style !== undefined && { style }) })),
  ).map(({ width }) => width);

/** The middle of a label that stays between two positions, as near as possible to its own. */
export const keepInside = (middle: number, width: number, from: number, to: number): number =>
  Math.max(from + width / 2, Math.min(to - width / 2, middle));

/**
 * Places labels in a row, each at its position or as near as the ends of the row allow. Earlier labels go first: one that would come too
 * close to them is left out, and gets undefined.
 */
export function placeInRow(
  labels: readonly { readonly at: number; readonly width: number }[],
  from: number,
  to: number,
): (number | undefined)[] {
  const taken: { readonly left: number; readonly right: number }[] = [];
  return labels.map(({ at, width }) => {
    const middle = keepInside(at, width, from, to);
    const [left, right] = [middle - width / 2, middle + width / 2];
    if (taken.some((other) => left < other.right + labelGap && other.left < right + labelGap)) return undefined;
    taken.push({ left, right });
    return middle;
  });
}

/** Places two labels in a row so that both are there: where they are too close they move apart. */
export function placeBoth(
  [a, b]: readonly [left: { readonly at: number; readonly width: number }, right: { at: number; width: number }],
  from: number,
  to: number,
): [number, number] {
  const need = (a.width + b.width) / 2 + labelGap;
  const missing = Math.max(0, need - (b.at - a.at)) / 2;
  const first = keepInside(a.at - missing, a.width, from, to - b.width - labelGap);
  return [first, keepInside(Math.max(b.at + missing, first + need), b.width, from, to)];
}
