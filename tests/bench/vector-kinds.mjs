// Made vectors for benchmarks of search: several kinds of data, always the same ones.

let state = 1;
/** Begins the sequence of random numbers again. */
export function startRandom() {
  state = 1;
}
/** A number from 0 to 1, by xorshift. */
export function uniform() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 32;
}
const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
const normals = (/** @type {number} */ n) => Float32Array.from({ length: n }, normal);

/** Fills a row. @typedef {(to: Float32Array) => void} MakeRow */

/** Makes rows of a kind of data. */
export const kinds = {
  /** @returns {MakeRow} */
  normal: () => (to) => {
    for (let i = 0; i < to.length; i++) to[i] = normal();
  },
  /** 1,000 clusters, whose vectors lie as far from each other as from their center. @param {number} dimension @returns {MakeRow} */
  clustered(dimension) {
    const centers = Array.from({ length: 1000 }, () => normals(dimension));
    return (to) => {
      const center = /** @type {Float32Array} */ (centers[Math.floor(uniform() * 1000)]);
      for (let i = 0; i < dimension; i++) to[i] = /** @type {number} */ (center[i]) + normal();
    };
  },
  /** @param {number} dimension @returns {MakeRow} */
  'low rank'(dimension) {
    const axes = Array.from({ length: 32 }, () => normals(dimension));
    return (to) => {
      to.fill(0);
      for (const axis of axes) {
        const share = normal();
        for (let i = 0; i < dimension; i++) to[i] += share * /** @type {number} */ (axis[i]);
      }
      for (let i = 0; i < dimension; i++) to[i] += 0.3 * normal();
    };
  },
  /** Neighboring elements alike, and a common part of all vectors. @param {number} dimension @returns {MakeRow} */
  correlated(dimension) {
    const common = normals(dimension);
    return (to) => {
      let last = normal();
      for (let i = 0; i < dimension; i++) {
        last = 0.9 * last + 0.436 * normal();
        to[i] = 2 * /** @type {number} */ (common[i]) + last;
      }
    };
  },
  /** @param {number} dimension @returns {MakeRow} */
  'near duplicates'(dimension) {
    const originals = Array.from({ length: 2000 }, () => normals(dimension));
    return (to) => {
      const original = /** @type {Float32Array} */ (originals[Math.floor(uniform() * 2000)]);
      for (let i = 0; i < dimension; i++) to[i] = /** @type {number} */ (original[i]) + 0.2 * normal();
    };
  },
};

/** @param {MakeRow} make @param {number} n @param {number} dimension */
export function rows(make, n, dimension) {
  const x = new Float32Array(n * dimension);
  for (let i = 0; i < n; i++) make(x.subarray(i * dimension, (i + 1) * dimension));
  return x;
}
