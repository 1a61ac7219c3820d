import type { Scalepoint } from 'scalepoint';
import { type Bins, binsFor, drawErrors, drawHistogram } from '../shared/charts.js';
import { byId, setText } from '../shared/dom.js';
import { formatCode, formatCount, formatLabel, formatMany, formatShare } from '../shared/format.js';
import { statisticsOf } from './data.js';
import type { Slice } from './evaluate.js';
import { drawNumberLine, stepsInView } from './numberline.js';
import { countCodes } from './twin.js';

/** What the pictures show: one part of a quantized tensor, or all numbers if they could not be quantized. */
export interface Scene {
  readonly values: Float32Array;
  readonly slice: Slice | undefined;
  /** `channel 3` or `group 12`; empty if the tensor has a single part. */
  readonly partName: string;
  readonly logarithmic: boolean;
}

/** The histogram, the number line and the histogram of errors. */
export interface Pictures {
  /** Draws a scene. Returns the bins of its histogram for the tables; undefined if no number is finite. */
  draw(core: Scalepoint, scene: Scene): Bins | undefined;
}

const pixelsOf = (node: Element) => {
  const { width, height } = node.getBoundingClientRect();
  return { width: Math.round(width), height: Math.round(height) };
};

/** Histogram of the finite numbers; undefined if there are none. Numbers that are all equal get a single bin. */
function binsOf(core: Scalepoint, values: Float32Array, bins: number): Bins | undefined {
  const { min, max, notFinite } = statisticsOf(values);
  const finite = values.length - notFinite;
  if (finite === 0) return undefined;
  if (min === max) return { min, max, counts: [finite] };
  const { counts } = core.histogram(values, { bins, min, max });
  return { min, max, counts };
}

function describeLevels({ levels, values, clipped, codes }: Slice, partName: string): string {
  const { qmin, qmax, scale, zeroPoint } = levels;
  const used = countCodes({ codes, levels }).reduce((n, count) => n + Number(count > 0), 0);
  return [
    ...(partName === ''
      ? []
      : [`${partName[0]!.toUpperCase()}${partName.slice(1)}, ${formatMany(values.length, 'number')}`]),
    `scale ${formatLabel(scale, 4)}`,
    `zero point ${formatCode(zeroPoint)}`,
    `${formatCount(used)} of ${formatCount(qmax - qmin + 1)} levels used`,
    `${formatShare(clipped / values.length)} clipped`,
  ].join(' · ');
}

/**
 * Sets up the pictures.
 * @param redraw called when the number line moves or the width of the page changes
 */
export function startPictures(redraw: () => void): Pictures {
  const histogram = byId('histogram', SVGSVGElement);
  const numberLine = byId('numberline', SVGSVGElement);
  const errors = byId('errors', SVGSVGElement);
  const slider = byId('window', HTMLInputElement);
  /** Position of the number line's view, from 0 (lowest code) to 1 (highest). As a fraction it fits every bit width. */
  let share = 0.5;

  slider.addEventListener('input', () => {
    share = slider.valueAsNumber / Math.max(1, Number(slider.max));
    redraw();
  });
  new ResizeObserver(redraw).observe(histogram);

  const drawLine = (slice: Slice) => {
    const size = pixelsOf(numberLine);
    const { qmin, qmax } = slice.levels;
    const room = qmax - qmin - stepsInView(slice.levels, size.width);
    const start = qmin + Math.round(share * room);
    byId('window-field', HTMLElement).hidden = room === 0;
    slider.max = String(room);
    slider.value = String(start - qmin);
    slider.setAttribute('aria-valuetext', `codes from ${start}`);
    drawNumberLine(numberLine, {
      values: slice.values,
      restored: slice.restored,
      levels: slice.levels,
      start,
      ...size,
    });
  };

  const drawErrorBins = (core: Scalepoint, { values, restored, levels }: Slice) => {
    const size = pixelsOf(errors);
    const difference = new Float32Array(values.length);
    for (let i = 0; i < values.length; i++) difference[i] = restored[i]! - values[i]!;
    const bins = binsOf(core, difference, Math.min(64, binsFor(difference.length, size.width)));
    if (bins !== undefined) drawErrors(errors, bins, levels.scale / 2, size);
  };

  return {
    draw(core, { values, slice, partName, logarithmic }) {
      const size = pixelsOf(histogram);
      const bins = binsOf(core, values, binsFor(values.length, size.width));
      const title = `Histogram${partName === '' ? '' : ` of ${partName}`}${slice === undefined ? '' : ' with quantization levels'}`;
      drawHistogram(
        histogram,
        {
          bins: bins ?? { min: 0, max: 0, counts: [0] },
          ...(slice !== undefined && { levels: slice.levels }),
          logarithmic,
          ...size,
        },
        title,
      );
      setText(
        byId('histogram-caption', HTMLElement),
        slice === undefined ? 'No levels: these numbers are not quantized.' : describeLevels(slice, partName),
      );
      if (slice !== undefined) {
        drawLine(slice);
        drawErrorBins(core, slice);
      }
      return bins;
    },
  };
}
