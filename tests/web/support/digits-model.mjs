// The sample network that reads digits as an ONNX graph, and samples for it.
import { drawDigits, pixels } from '../../../web/demo/shared/digits.mjs';
import { Graph, weightsIn } from './story-model.mjs';

const path = new URL('../../../web/demo/public/samples/digits.safetensors', import.meta.url);

/** The network: images [count, pixels] to scores [count, classes]. Weights are those of Gemm, read as their transposes. */
export function digitsModel() {
  const weights = weightsIn(path.pathname);
  const g = new Graph();
  const put = (/** @type {string} */ name) => {
    const { shape, data } = /** @type {{ shape: number[], data: Float32Array }} */ (weights[name]);
    return g.floats(name, shape, data);
  };
  const dense = (/** @type {string} */ x, /** @type {string} */ name, output = `${name}.sum`) =>
    g.add('Gemm', [x, put(`${name}.weight`), put(`${name}.bias`)], { transB: 1 }, output);
  const normal = g.add('LayerNormalization', [dense('images', 'fc1'), put('norm.weight'), put('norm.bias')]);
  const second = g.add('Relu', [dense(g.add('Relu', [normal]), 'fc2')]);
  dense(second, 'fc3', 'scores');
  return g.file([['images', ['count', pixels], 1]], [['scores', ['count', 10], 1]]);
}

/** @param {number} count @param {number} seed */
export function digitSamples(count, seed) {
  const { images } = drawDigits(count, seed);
  return { data: images, shape: [count, pixels] };
}
