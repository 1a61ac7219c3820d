// The same operations as plain loops over typed arrays, as most developers would write them.

export function minmax(x: Float32Array): [min: number, max: number] {
  let min = Infinity;
  let max = -Infinity;
  for (let i = 0; i < x.length; i++) {
    const value = x[i] as number;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return [min, max];
}

export function plainQuantize(x: Float32Array, scale: number, zeroPoint: number, codes: Int8Array): void {
  for (let i = 0; i < x.length; i++) {
    codes[i] = Math.max(-128, Math.min(127, Math.round((x[i] as number) / scale) + zeroPoint));
  }
}

export function rangeAndQuantize(x: Float32Array, codes: Int8Array): void {
  const [min, max] = minmax(x);
  const low = Math.min(min, 0);
  const scale = (Math.max(max, 0) - low) / 255;
  plainQuantize(x, scale, Math.round(-128 - low / scale), codes);
}

export function groups(x: Float32Array, size: number, levels: number, codes: Int8Array, scales: Float32Array): void {
  for (let g = 0, i = 0; i < x.length; g++, i += size) {
    let largest = 0;
    for (let j = i; j < i + size; j++) largest = Math.max(largest, Math.abs(x[j] as number));
    const scale = largest / levels || 1;
    scales[g] = scale;
    for (let j = i; j < i + size; j++) {
      codes[j] = Math.max(-levels - 1, Math.min(levels, Math.round((x[j] as number) / scale)));
    }
  }
}

export function plainDequantize(codes: Int8Array, scale: number, zeroPoint: number, x: Float32Array): void {
  for (let i = 0; i < codes.length; i++) x[i] = ((codes[i] as number) - zeroPoint) * scale;
}

export function error(x: Float32Array, codes: Int8Array, scale: number, zeroPoint: number): [mse: number, max: number] {
  let squares = 0;
  let largest = 0;
  for (let i = 0; i < x.length; i++) {
    const e = (x[i] as number) - ((codes[i] as number) - zeroPoint) * scale;
    squares += e * e;
    largest = Math.max(largest, Math.abs(e));
  }
  return [squares / x.length, largest];
}

/** y = W x, for W of y.length rows. */
export function matvec(w: Float32Array, x: Float32Array, y: Float32Array): void {
  const inputs = x.length;
  for (let row = 0; row < y.length; row++) {
    const start = row * inputs;
    let sum = 0;
    for (let i = 0; i < inputs; i++) sum += (w[start + i] as number) * (x[i] as number);
    y[row] = sum;
  }
}
