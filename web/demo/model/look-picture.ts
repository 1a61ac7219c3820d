// Picture of the weights of a tensor: before on the left of a divider, after on its right.
import { byId, onTheme, setText } from '../shared/dom.js';
import { formatCount, formatShape } from '../shared/format.js';
import type { Look, WeightPicture } from './look.js';

/** The three colors of the scale, as the legend has them: red, green and blue from 0 to 255. */
function colorsOf(): readonly (readonly number[])[] {
  return ['low', 'zero', 'high'].map((name) => {
    const { backgroundColor } = getComputedStyle(byId(`look-${name}`, HTMLElement));
    return (backgroundColor.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
  });
}

/** Paints the columns of a picture from `first` on. */
function paint(
  image: ImageData,
  values: Float32Array,
  reach: number,
  first: number,
  colors: readonly (readonly number[])[],
) {
  const { width, data } = image;
  const [low = [], zero = [], high = []] = colors;
  for (let i = 0; i < values.length; i++) {
    if (i % width < first) continue;
    const value = values[i] as number;
    const share = Math.min(1, Math.abs(value) / reach);
    const end = value < 0 ? low : high;
    for (let c = 0; c < 3; c++) {
      data[4 * i + c] = (zero[c] as number) + share * ((end[c] as number) - (zero[c] as number));
    }
    data[4 * i + 3] = 255;
  }
}

/** The part of the tensor in the picture, in words. */
function partText({ rows, columns, of, isSampled }: WeightPicture): string {
  const size = `${formatCount(rows)} × ${formatCount(columns)}`;
  if (rows * columns === of[0] * of[1]) return `All ${formatCount(rows * columns)} numbers.`;
  if (!isSampled) return `${size} numbers of ${formatShape(of)}, each of them.`;
  return `The whole tensor: ${size} of its ${formatShape(of)} numbers, evenly spread.`;
}

/** Sets up the picture. */
export function startLookPicture(current: () => Look | undefined) {
  const canvas = byId('look-weights', HTMLCanvasElement);
  const divider = byId('look-divider', HTMLInputElement);
  const frame = byId('look-divided', HTMLElement);
  const radios = [...byId('look-after', HTMLFieldSetElement).querySelectorAll('input')];

  const draw = () => {
    const look = current();
    const { answer } = look ?? {};
    if (answer === undefined) return;
    const { picture } = answer;
    const { rows, columns, before, after, reach } = picture;
    const side = radios[1]?.checked ? 1 : 0;
    const share = divider.valueAsNumber / 100;
    const at = Math.round(share * columns);
    canvas.width = columns;
    canvas.height = rows;
    const image = new ImageData(columns, rows);
    const colors = colorsOf();
    paint(image, before, reach, 0, colors);
    paint(image, after[side], reach, at, colors);
    canvas.getContext('2d')?.putImageData(image, 0, 0);
    frame.style.setProperty('--at', String(at / columns));
    divider.setAttribute('aria-valuetext', `before on the left ${Math.round(share * 100)} percent`);
    const name = answer.labels[side];
    setText(byId('look-after-name', HTMLElement), `After: ${name}`);
    setText(byId('look-weights-words', HTMLElement), partText(picture));
    canvas.setAttribute('aria-label', `Weights before and after as ${name}. ${partText(picture)}`);
  };
  divider.addEventListener('input', draw);
  for (const radio of radios) radio.addEventListener('change', draw);
  onTheme(canvas, draw);
  return draw;
}
