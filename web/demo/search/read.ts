import { FileError } from '../shared/file-error.js';
import { formatMany } from '../shared/format.js';
import { headOf, isPointer, pointerText, strangerOf } from '../shared/strangers.js';
import type { VectorSet } from './made.js';

/** Most numbers that are read: a quarter of a gigabyte. */
const mostNumbers = 1 << 26;
/** Fewest vectors for a recall that means something. */
const fewest = 50;

const supported =
  'This page reads a matrix in .npy or .safetensors, and lines of JSON with a vector each. Drop such a file.';

/** Members of objects in JSON lines that hold a vector. */
const members = ['embedding', 'vector', 'values', 'data'];

/** The vector of a line of JSON. */
function vectorOf(line: string, number: number): readonly unknown[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    throw new FileError(`Line ${number} is not JSON. Each line has to hold one vector.`);
  }
  if (Array.isArray(parsed)) return parsed;
  const object = (parsed ?? {}) as Record<string, unknown>;
  const found = members.map((name) => object[name]).find(Array.isArray) ?? Object.values(object).find(Array.isArray);
  if (found !== undefined) return found;
  throw new FileError(`Line ${number} holds no array of numbers. Each line has to be one, or an object with one.`);
}

/** Reads vectors from lines of JSON. */
async function readLines(file: File, done: (share: number) => void): Promise<VectorSet & { left: number }> {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let values = new Float32Array(0);
  let [dimension, count, left, number, read] = [0, 0, 0, 0, 0];
  const take = (line: string) => {
    number++;
    if (line.trim() === '') return;
    if (dimension > 0 && (count + 1) * dimension > mostNumbers) {
      left++;
      return;
    }
    const vector = vectorOf(line, number);
    dimension ||= vector.length;
    if (vector.length !== dimension) {
      throw new FileError(`Line ${number} has ${vector.length} numbers, and the first one ${dimension}.`);
    }
    if ((count + 1) * dimension > values.length) {
      const longer = new Float32Array(Math.min(mostNumbers, Math.max(1 << 20, 2 * values.length)));
      longer.set(values);
      values = longer;
    }
    for (const [i, x] of vector.entries()) {
      if (typeof x !== 'number') throw new FileError(`Line ${number}: element ${i + 1} is not a number.`);
      values[count * dimension + i] = x;
    }
    count++;
  };
  let rest = '';
  for (;;) {
    const { value, done: ended } = await reader.read();
    if (ended) break;
    read += value.length;
    done(read / file.size);
    const lines = (rest + value).split('\n');
    rest = lines.pop() as string;
    for (const line of lines) take(line);
  }
  take(rest);
  return { name: file.name, values: values.subarray(0, count * dimension), count, dimension, left };
}

/** Reads the largest matrix of floats of a file. */
async function readMatrix(file: File): Promise<VectorSet & { left: number }> {
  const { inspectModel, readFloats } = await import('scalepoint/model');
  const { tensors } = await inspectModel([file]);
  const size = ({ shape }: { shape: readonly number[] }) => shape.reduce((a, b) => a * b, 1);
  const [largest] = tensors.filter(({ shape }) => shape.length === 2).sort((a, b) => size(b) - size(a));
  if (largest === undefined) {
    throw new FileError(`${file.name} holds no matrix: vectors are its rows. Drop a file with one.`);
  }
  if (size(largest) > 2 * mostNumbers) {
    throw new FileError(
      `${largest.name} holds ${formatMany(size(largest), 'number')}, more than this page reads. Drop a smaller file.`,
    );
  }
  const { data, shape } = await readFloats([file], largest.name, { workers: 0 });
  const [all = 0, dimension = 0] = shape;
  const count = Math.min(all, Math.floor(mostNumbers / Math.max(1, dimension)));
  const name = tensors.length > 1 ? `${largest.name} in ${file.name}` : file.name;
  return { name, values: (data as Float32Array).subarray(0, count * dimension), count, dimension, left: all - count };
}

/** Reads vectors from a file. @throws FileError that says what to do; ScalepointError if the file is damaged */
export async function readVectors(
  file: File,
  done: (share: number) => void,
): Promise<VectorSet & { readonly left: number }> {
  if (await isPointer(file)) throw new FileError(pointerText(file.name));
  const head = await headOf(file);
  const stranger = strangerOf(head);
  if (stranger !== undefined) throw new FileError(`${file.name} is ${stranger}. ${supported}`);
  const isJson = /^\s*[[{]/.test(new TextDecoder().decode(head.subarray(0, 64)));
  const found = await (isJson ? readLines(file, done) : readMatrix(file)).catch((error: unknown) => {
    const isUnknown = error instanceof Error && (error as { code?: unknown }).code === 'UNKNOWN_FORMAT';
    throw isUnknown ? new FileError(`${file.name} holds no vectors. ${supported}`) : error;
  });
  if (found.count < fewest || found.dimension < 2) {
    throw new FileError(
      `${found.name} has ${formatMany(found.count, 'vector')} of ${formatMany(found.dimension, 'number')}. This page needs ${fewest} of 2 at least.`,
    );
  }
  return found;
}
