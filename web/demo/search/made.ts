/** Vectors in one array. */
export interface VectorSet {
  readonly name: string;
  readonly values: Float32Array;
  readonly count: number;
  readonly dimension: number;
}

const clusters = 400;
/** Elements after which the mean size of the others falls: models that are trained for it put most into the first ones. */
const head = 48;

/** Normal numbers from a table, in an order that the seed decides. Quick, since there are millions. */
function normals(seed: number): () => number {
  const table = new Float32Array(1 << 16);
  let state = seed >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
  for (let i = 0; i < table.length; i++) {
    const radius = Math.sqrt(-2 * Math.log((next() + 1) / 2 ** 32));
    table[i] = radius * Math.cos((2 * Math.PI * next()) / 2 ** 32);
  }
  return () => table[next() >>> 16] as number;
}

/** Makes vectors in clusters, with a part that all share and lengths that differ, as embeddings of texts have. Always the same ones. */
export function makeVectors(count: number, dimension: number, done: (share: number) => void): VectorSet {
  const normal = normals(20_240_917);
  const scales = Float32Array.from({ length: dimension }, (_, i) => 1 / Math.sqrt(1 + i / head));
  const centers = Float32Array.from(
    { length: clusters * dimension },
    (_, i) => normal() * (scales[i % dimension] as number),
  );
  const common = scales.map((scale) => 0.5 * scale * normal());
  const values = new Float32Array(count * dimension);
  for (let row = 0; row < count; row++) {
    const center = (Math.imul(row + 1, 0x9e3779b1) >>> 0) % clusters;
    const length = 1 + 0.15 * normal();
    for (let i = 0; i < dimension; i++) {
      const away = 0.8 * (scales[i] as number) * normal();
      values[row * dimension + i] =
        length * ((centers[center * dimension + i] as number) + (common[i] as number) + away);
    }
    if (row % 10_000 === 0) done(row / count);
  }
  return { name: 'made vectors', values, count, dimension };
}
