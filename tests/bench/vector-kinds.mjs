// Made vectors for benchmarks of search: several kinds of data, always the same ones. The best of scores, and the error of a mean.

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

/**
 * Clusters whose vectors lie as far apart as the centers. The first `count` vectors go to all clusters in turns, so that each holds `size`
 * of them. Later vectors, the queries, go to clusters at random.
 * @param {number} size @returns {(dimension: number, count: number) => MakeRow}
 */
export const clustersOf = (size) => (dimension, count) => {
  const centers = Array.from({ length: Math.ceil(count / size) }, () => normals(dimension));
  let made = 0;
  return (to) => {
    const cluster = made < count ? made % centers.length : Math.floor(uniform() * centers.length);
    made++;
    const center = /** @type {Float32Array} */ (centers[cluster]);
    for (let i = 0; i < dimension; i++) to[i] = /** @type {number} */ (center[i]) + normal();
  };
};

/** Makes rows of a kind of data, of which `count` are indexed. */
export const kinds = {
  'clusters of 10': clustersOf(10),
  'clusters of 20': clustersOf(20),
  'clusters of 50': clustersOf(50),
  'clusters of 100': clustersOf(100),
  /**
   * 1,000 clusters, to which all vectors go at random. Queries of those that got fewer than ten have neighbors in other clusters.
   * @param {number} dimension @returns {MakeRow}
   */
  'random clusters'(dimension) {
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
  /** @returns {MakeRow} */
  normal: () => (to) => {
    for (let i = 0; i < to.length; i++) to[i] = normal();
  },
};

/** @param {MakeRow} make @param {number} n @param {number} dimension */
export function rows(make, n, dimension) {
  const x = new Float32Array(n * dimension);
  for (let i = 0; i < n; i++) make(x.subarray(i * dimension, (i + 1) * dimension));
  return x;
}

/** The indices of the best k scores, best first. @param {ArrayLike<number>} scores @param {number} k */
export function bestOf(scores, k) {
  /** @type {number[]} */
  const list = [];
  for (let i = 0; i < scores.length; i++) {
    const score = /** @type {number} */ (scores[i]);
    if (list.length === k && score <= /** @type {number} */ (scores[/** @type {number} */ (list[k - 1])])) continue;
    let at = list.length;
    while (at > 0 && /** @type {number} */ (scores[/** @type {number} */ (list[at - 1])]) < score) at--;
    list.splice(at, 0, i);
    if (list.length > k) list.pop();
  }
  return list;
}

/** The mean of numbers, and its standard error. @param {readonly number[]} list */
export function meanOf(list) {
  const mean = list.reduce((sum, x) => sum + x, 0) / list.length;
  const squares = list.reduce((sum, x) => sum + (x - mean) ** 2, 0);
  return { mean, error: Math.sqrt(squares / Math.max(1, list.length - 1) / list.length) };
}
