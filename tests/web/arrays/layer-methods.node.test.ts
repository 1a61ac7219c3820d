// Methods work when they are taken out of their object.
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import { expectCode } from '../support/support.js';

/** Names of the public methods of an object. */
const methodsOf = (object: object) =>
  Object.entries(Object.getOwnPropertyDescriptors(Object.getPrototypeOf(object))).flatMap(([name, { value }]) =>
    typeof value === 'function' && name !== 'constructor' ? [name] : [],
  );

it('gives methods that need no object', async () => {
  const sp = await load();
  const { quantize, dequantize, compare, linear, index, observer, errorSum, importance, allocate, dispose } = sp;
  const x = Float32Array.of(1, -2, 3, 4);
  const q = quantize(x, { shape: [2, 2] });
  expect(dequantize(q)).toEqual(sp.dequantize(q));
  expect(compare(x, q)).toEqual(sp.compare(x, q));
  const layer = linear(q);
  const { forward } = layer;
  expect(forward([1, 2])).toEqual(layer.forward([1, 2]));
  const found = index(x, { shape: [2, 2] });
  const { search, add } = found;
  add([[1, 1]]);
  expect(search([1, 1])).toEqual(found.search([1, 1]));
  const { observe, parameters, reset } = observer();
  observe(x);
  expect(parameters().scale).toEqual(q.scale);
  reset();
  expectCode(parameters, 'EMPTY');
  const sum = errorSum();
  const { add: addErrors, measures } = sum;
  addErrors(x, q);
  expect(measures()).toEqual(compare(x, q));
  const weights = importance();
  const { add: addInputs } = weights;
  addInputs('a.weight', [1, 2], { columns: 2 });
  expect(weights.names).toEqual(['a.weight']);
  const array = allocate('float32', 4);
  for (const object of [sp, layer, found, observer(), sum, weights, array]) {
    for (const name of methodsOf(object)) expect(Object.hasOwn(object, name), name).toBe(true);
    // They do not show among the members.
    expect(Object.keys(object).filter((name) => methodsOf(object).includes(name))).toEqual([]);
  }
  array.dispose();
  expectCode(() => array.view, 'DISPOSED');
  dispose();
  expectCode(() => quantize(x), 'DISPOSED');
});

it('lets tests replace them', async () => {
  const sp = await load();
  sp.pack = () => new Uint8Array(1);
  expect(sp.pack(sp.quantize([1])).length).toBe(1);
  sp.dispose();
});
