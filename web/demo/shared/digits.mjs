// Draws the digits that the sample network is trained and tested on. The script that trains it and the front page share this.
//
// The digits are the same on every machine: the only operations are + - * /, whose results IEEE 754 defines exactly.

/** @typedef {{ count: number, images: Float32Array, labels: Uint8Array }} Digits */

/** Pixels on one side of an image. */
export const side = 16;
/** Pixels of an image. */
export const pixels = side * side;
export const classes = 10;
/** The seed of the digits that the network has never seen. */
export const testSeed = 3;

// ------------------------------------------------------------------------------------------------------ random numbers

/**
 * A generator of uniform numbers in [0, 1) with 32 random bits each. It applies a mixing function to a counter.
 * @param {number} seed
 */
export function randomNumbers(seed) {
  let counter = Math.imul(seed, 0x632be5ab);
  return () => {
    counter = (counter + 0x9e3779b9) | 0;
    let bits = counter;
    bits = Math.imul(bits ^ (bits >>> 16), 0x21f0aaad);
    bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97);
    return ((bits ^ (bits >>> 15)) >>> 0) / 4294967296;
  };
}

/**
 * A random number that is nearly standard normal. The sum of twelve uniform numbers has variance 1, and needs no logarithm.
 * @param {() => number} random
 */
export function bell(random) {
  let sum = -6;
  for (let i = 0; i < 12; i++) sum += random();
  return sum;
}

// -------------------------------------------------------------------------------------------------------------- digits

const glyphWidth = 5;
const glyphHeight = 7;
/** The glyphs of the ten digits side by side, one space apart. */
const font = [
  ' ###    #    ###  #####    #  #####   ##  #####  ###   ### ',
  '#   #  ##   #   #     #   ##  #      #        # #   # #   #',
  '#   # # #       #    #   # #  ####  #        #  #   # #   #',
  '#   #   #     ##   ###  #  #      # ####    #    ###   ####',
  '#   #   #    #        # #####     # #   #   #   #   #     #',
  '#   #   #   #     #   #    #  #   # #   #  #    #   #    # ',
  ' ###  ##### #####  ###     #   ###   ###   #     ###   ##  ',
];

/**
 * The ink of a glyph at a point, from 0 to 1, interpolated linearly between the four cells around the point.
 * @param {number} digit
 * @param {number} x in cells, 0 at the center of the leftmost column
 * @param {number} y in cells, 0 at the center of the topmost row
 */
function ink(digit, x, y) {
  const left = Math.floor(x);
  const top = Math.floor(y);
  const cell = (/** @type {number} */ row, /** @type {number} */ column) =>
    row >= 0 &&
    row < glyphHeight &&
    column >= 0 &&
    column < glyphWidth &&
    font[row]?.[digit * (glyphWidth + 1) + column] === '#'
      ? 1
      : 0;
  const upper = cell(top, left) * (left + 1 - x) + cell(top, left + 1) * (x - left);
  const lower = cell(top + 1, left) * (left + 1 - x) + cell(top + 1, left + 1) * (x - left);
  return upper * (top + 1 - y) + lower * (y - top);
}

/**
 * Draws digits one after the other, of random size, slant, position and strength, with noise. The labels are 0, 1, ... 9, 0, 1, ...
 * @param {number} seed
 * @returns {(image: Float32Array) => number} fills an image, with pixels in [0, 1] and in row-major order, and returns its label
 */
export function digitPen(seed) {
  const random = randomNumbers(seed);
  const between = (/** @type {number} */ low, /** @type {number} */ high) => low + (high - low) * random();
  let n = 0;
  return (image) => {
    const digit = n++ % classes;
    const cellWidth = between(1.3, 2.1);
    const cellHeight = between(1.3, 1.9);
    const slant = between(-0.3, 0.3);
    const centreX = (side - 1) / 2 + between(-2, 2);
    const centreY = (side - 1) / 2 + between(-1.5, 1.5);
    const strength = between(0.6, 1);
    const noise = between(0.05, 0.26);
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const y = row - centreY;
        const x = column - centreX - slant * y;
        const light = ink(digit, x / cellWidth + (glyphWidth - 1) / 2, y / cellHeight + (glyphHeight - 1) / 2);
        const value = light * strength + noise * bell(random);
        image[row * side + column] = Math.min(1, Math.max(0, value));
      }
    }
    return digit;
  };
}

/**
 * Draws some digits at once.
 * @param {number} count
 * @param {number} seed
 * @returns {Digits}
 */
export function drawDigits(count, seed) {
  const draw = digitPen(seed);
  const images = new Float32Array(count * pixels);
  const labels = new Uint8Array(count);
  for (let n = 0; n < count; n++) labels[n] = draw(images.subarray(n * pixels, (n + 1) * pixels));
  return { count, images, labels };
}
