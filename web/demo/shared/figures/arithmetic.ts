import type { Scalepoint } from 'scalepoint';
import { byId, setText, svg } from '../dom.js';
import { formatLabel } from '../format.js';
import { drawnFor, figureIn, makeHandle, sizeOf } from './figure.js';
import type { FigureState, StartFigure } from './state.js';

const weights = Float32Array.of(0.9, -0.4, 0.1, -1.4);
const inputs = Float32Array.of(0.5, 1, -0.25, 0.75);

/** Names of the steps, on the track of the handle. */
const steps = ['memory', 'register', 'product', 'result'] as const;

/** The numbers of each step of a layer, by the core. */
function follow(core: Scalepoint) {
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
}

/** A dot product with codes of 4 bits. The visitor drags the step that is shown. */
export const startArithmetic: StartFigure = (set, current) => {
  const figure = figureIn('fig-arithmetic');
  let size = sizeOf(figure);
  const stopAt = (step: number) => 44 + (step / (steps.length - 1)) * (size.width - 88);
  const handle = makeHandle(figure, {
    label: 'Step of the product',
    min: 0,
    max: steps.length - 1,
    step: 1,
    valueAt: (x) => Math.round(((x - 44) / (size.width - 88)) * (steps.length - 1)),
    current: () => current().step,
    onChange: (step) => set({ step: Math.round(step) }),
  });
  const moving = svg('g', {});
  figure.append(moving, handle.node);
  let known: ReturnType<typeof follow> | undefined;

  const draw = ({ core, step }: FigureState) => {
    size = sizeOf(figure);
    if (core !== undefined) known ??= follow(core);
    const nodes: Node[] = [
      svg('line', { class: 'track', x1: stopAt(0), x2: stopAt(steps.length - 1), y1: 24, y2: 24 }),
      ...steps.map((name, i) => svg('text', { x: stopAt(i), y: 58, 'text-anchor': 'middle' }, name)),
    ];
    let words = '';
    if (known !== undefined) {
      const { bytes, codes, inputCodes, scales, result } = known;
      const products = codes.map((code, i) => code * (inputCodes[i] ?? 0));
      const sum = products.reduce((total, each) => total + each, 0);
      const signed = (value: number) => formatLabel(value);
      // Draw rows of boxes, each as wide as the bits that it takes.
      const row = (y: number, label: string, texts: readonly string[], width: number) => {
        const all = width * texts.length;
        const from = (size.width - all) / 2;
        nodes.push(svg('text', { x: size.width / 2, y: y - 8, 'text-anchor': 'middle' }, label));
        texts.forEach((text, i) => {
          nodes.push(
            svg('rect', { class: 'box', x: from + i * width, y, width, height: 30 }),
            svg('text', { class: 'code', x: from + (i + 0.5) * width, y: y + 20, 'text-anchor': 'middle' }, text),
          );
        });
      };
      const unit = Math.min(64, (size.width - 16) / 4);
      if (step === 0) {
        const hex = bytes.map((byte) => byte.toString(16).padStart(2, '0'));
        row(112, 'weights in memory, two codes a byte', hex, 44);
        row(182, 'inputs, 8 bits each', inputCodes.map(signed), 44);
        words = `In memory, four weights take ${bytes.length} bytes: ${hex.join(' ')} in hexadecimal. A layer reads an eighth of the bytes of float32.`;
      } else if (step === 1) {
        row(112, 'codes, 16 bits each', codes.map(signed), unit);
        row(182, 'inputs, 16 bits each', inputCodes.map(signed), unit);
        words = 'In the register, each code becomes an integer of 16 bits. WebAssembly has no products of 4 bits.';
      } else if (step === 2) {
        row(112, 'products', products.map(signed), unit);
        row(182, 'their sum, 32 bits', [signed(sum)], unit * 2);
        words = 'Integers are multiplied and summed exactly. No weight becomes a float.';
      } else {
        row(
          112,
          'sum × scale of the weights × scale of the inputs',
          [`${signed(sum)} × ${formatLabel(scales[0], 2)} × ${formatLabel(scales[1], 3)}`],
          unit * 4,
        );
        row(182, 'one float of the result', [formatLabel(result, 4)], unit * 2);
        const exact = weights.reduce((total, weight, i) => total + weight * (inputs[i] ?? 0), 0);
        words = `The scales count once, for the sum: ${formatLabel(result, 4)}. With float32 weights and inputs it is ${formatLabel(exact, 4)}.`;
      }
    }
    moving.replaceChildren(...nodes);
    handle.place(stopAt(step), 24, step, words || (steps[step] ?? ''));
    setText(byId('fig-arithmetic-words', HTMLElement), words);
  };
  return drawnFor(figure, draw, current, 'step');
};
