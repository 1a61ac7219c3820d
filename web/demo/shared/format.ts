const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** A count with separators: `4,096`. */
export function formatCount(value: number): string {
  return whole.format(value);
}

/** `1 number`, `2 numbers`. */
export function formatMany(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

/** A real number in few digits. Its minus sign is a plain hyphen, so that it can be copied into code. */
export function formatReal(value: number, digits = 4): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '-∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split('e');
    return `${Number(mantissa)}e${Number(exponent)}`;
  }
  return String(Number(value.toPrecision(digits)));
}

/** A real number for a label or a sentence. Like `formatReal`, but with a typographic minus sign. */
export function formatLabel(value: number, digits = 3): string {
  return formatReal(value, digits).replace(/-/g, '\u2212');
}

/** A whole number for a label, with a typographic minus sign. */
export function formatCode(value: number): string {
  return String(value).replace('-', '\u2212');
}

/** Decibels: `18.91 dB`. */
export function formatDecibels(value: number): string {
  return Number.isFinite(value) ? `${formatLabel(Number(value.toFixed(2)), 5)} dB` : `${formatLabel(value)} dB`;
}

/** A size in decimal units with three digits, as on the command line: `512 B`, `67.1 kB`, `1.24 MB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)}\u00a0${units[unit]}`;
}

/** A fraction as a percentage. A fraction above 0 never shows as 0 %. Its spaces do not break. */
export function formatShare(share: number): string {
  if (share === 0) return '0\u00a0%';
  if (share < 0.0001) return '<\u00a00.01\u00a0%';
  return `${formatReal(Number((share * 100).toFixed(2)), 4)}\u00a0%`;
}

/** A shape: `16 × 256`. */
export function formatShape(shape: readonly number[]): string {
  return shape.length === 0 ? 'one number' : shape.map(formatCount).join(' × ');
}
