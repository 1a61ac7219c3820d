import type { Scalepoint } from 'scalepoint';
import { formatLabel } from '../format.js';
import { remembered, svg, type TemplateResult } from '../template.js';
import type { Figure } from './figure.js';

const weights = Float32Array.of(0.9, -0.4, 0.1, -1.4);
const inputs = Float32Array.of(0.5, 1, -0.25, 0.75);

/** Names of the steps, on the track of the handle. */
const steps = ['memory', 'register', 'product', 'result'] as const;

/** A row of boxes with a number in each. */
interface NumbersRow {
  readonly label: string;
  readonly texts: readonly string[];
  /** Width of a box in pixels. It stands for the bits that a number takes. */
  readonly width: number;
}

/** Two rows of boxes, and the sentence about them. */
type Step = readonly [above: NumbersRow, below: NumbersRow, words: string];

/** The numbers of each step of a layer, by the core. */
const follow = remembered((core: Scalepoint) => {
  const w = core.quantize(weights, { dtype: 'int4', shape: [1, weights.length] });
  const x = core.quantize(inputs, { dtype: 'int8' });
  const layer = core.linear(w, { activations: 'int8' });
  try {
    return {
      bytes: [...core.pack(w)],
      codes: [...w.data],
      inputCodes: [...x.data],
      scales: [w.scale[0] ?? 0, x.scale[0] ?? 0] as const,
      result: layer.forward(inputs)[0] ?? 0,
    };
  } finally {
    layer.dispose();
  }
});

/** The pictures of all steps. @param unit width of 16 bits, in pixels */
function stepsOf(core: Scalepoint, unit: number): readonly Step[] {
  const { bytes, codes, inputCodes, scales, result } = follow(core);
  const signed = (value: number) => formatLabel(value);
  const products = codes.map((code, i) => code * (inputCodes[i] ?? 0));
  const sum = signed(products.reduce((total, each) => total + each, 0));
  const hex = bytes.map((byte) => byte.toString(16).padStart(2, '0'));
  const exact = weights.reduce((total, weight, i) => total + weight * (inputs[i] ?? 0), 0);
  const scaled = `${sum} × ${formatLabel(scales[0], 2)} × ${formatLabel(scales[1], 3)}`;
  const row = (label: string, texts: readonly string[], width: number): NumbersRow => ({ label, texts, width });
  return [
    [
      row('weights in memory, two codes a byte', hex, 44),
      row('inputs, 8 bits each', inputCodes.map(signed), 44),
      `In memory, four weights take ${bytes.length} bytes: ${hex.join(' ')} in hexadecimal. A layer reads an eighth of the bytes of float32.`,
    ],
    [
      row('codes, 16 bits each', codes.map(signed), unit),
      row('inputs, 16 bits each', inputCodes.map(signed), unit),
      'In the register, each code becomes an integer of 16 bits. WebAssembly has no products of 4 bits.',
    ],
    [
      row('products', products.map(signed), unit),
      row('their sum, 32 bits', [sum], unit * 2),
      'Integers are multiplied and summed exactly. No weight becomes a float.',
    ],
    [
      row('sum × scale of the weights × scale of the inputs', [scaled], unit * 4),
      row('one float of the result', [formatLabel(result, 4)], unit * 2),
      `The scales count once, for the sum: ${formatLabel(result, 4)}. With float32 weights and inputs it is ${formatLabel(exact, 4)}.`,
    ],
  ];
}

/** A dot product with codes of 4 bits. The visitor drags the step that is shown. */
export const arithmetic: Figure = {
  name: 'arithmetic',
  label: 'Step of the product',
  min: 0,
  max: steps.length - 1,
  step: 1,
  uses: ['step'],
  valueAt: (x, { width }) => ((x - 44) / (width - 88)) * (steps.length - 1),
  snap: Math.round,
  draw({ core, step }, { width: room }) {
    const stopAt = (at: number) => 44 + (at / (steps.length - 1)) * (room - 88);
    const rowView = (y: number, { label, texts, width }: NumbersRow): TemplateResult => {
      const from = (room - width * texts.length) / 2;
      return svg`<text x=${room / 2} y=${y - 8} text-anchor="middle">${label}</text>${texts.map(
        (text, i) => svg`<rect class="box" x=${from + i * width} y=${y} width=${width} height="30" />
          <text class="code" x=${from + (i + 0.5) * width} y=${y + 20} text-anchor="middle">${text}</text>`,
      )}`;
    };
    const shown = core && stepsOf(core, Math.min(64, (room - 16) / 4))[step];
    const picture = svg`
      <line class="track" x1=${stopAt(0)} x2=${stopAt(steps.length - 1)} y1="24" y2="24" />
      ${steps.map((name, i) => svg`<text x=${stopAt(i)} y="58" text-anchor="middle">${name}</text>`)}
      ${shown && [rowView(112, shown[0]), rowView(182, shown[1])]}`;
    return {
      picture,
      handle: { x: stopAt(step), y: 24 },
      words: shown?.[2] ?? '',
      value: shown?.[2] ?? steps[step] ?? '',
    };
  },
};
