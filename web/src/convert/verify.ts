/**
 * Reads all of a model and reports its errors. Offsets, sizes and types were checked when it was opened. This checks the bytes of the
 * tensors, and the relations between parts that the format knows.
 */

import { typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import type { BitCheck } from '../formats/codecs/checks.js';
import { codecOf } from '../formats/codecs/registry.js';
import { type ByteSource, fillFrom } from '../formats/files/bytes.js';
import { Md5 } from '../formats/files/checksums.js';
import { readNeighbors } from '../formats/files/neighbors.js';
import { type Finding, md5Digits, type SourceTensor } from '../formats/format.js';
import type { FormatSidecars, ModelFormat } from '../formats/registry.js';
import { TensorProgress } from './engine.js';
import { elementIndex } from './logical-tensor.js';
import { withModel } from './open.js';
import { modelCalls, optionNames } from './options.js';
import type { ModelInput } from './recognize.js';
import { checkOptions, checkWorkOptions, type WorkOptions, withCallbacks } from './work-options.js';

/** The findings about a model. */
export interface VerifyReport {
  /** The format of the file. */
  readonly format: ModelFormat;
  /** Size of its files in bytes. All of them were read. */
  readonly bytes: number;
  /** Names of its files; empty if a file is unnamed. */
  readonly files: readonly string[];
  /** Number of tensors. */
  readonly tensors: number;
  /** Errors of the model. Empty for a valid model. */
  readonly problems: readonly Finding[];
  /** Unusual facts that may be intended, such as NaN among floats. */
  readonly notes: readonly Finding[];
}

/** Size of a chunk in bytes. A multiple of every unit. */
const chunkBytes = 4 * 2 ** 20;

/** Shorter stretches are read together with their neighbors. */
const smallBytes = 1 << 14;

/** A check and its findings so far. */
interface Running {
  readonly check: BitCheck;
  count: number;
  /** Offset of the first wrong unit in the part. */
  first: number;
}

/** Checks the units of a chunk. @param begin its offset in the part */
function checkUnits(running: Running, bytes: Uint8Array<ArrayBuffer>, begin: number): void {
  const { unit, at, stride, mask, wrong } = running.check;
  // A chunk begins at a multiple of every unit.
  const Units = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[unit];
  const units = new Units(bytes.buffer, bytes.byteOffset, Math.floor(bytes.length / unit));
  const step = stride / unit;
  // Skip the units of earlier chunks.
  const skipped = Math.max(0, Math.ceil((begin - at) / stride));
  const wanted = wrong === 'all' ? mask | 0 : 0;
  const isAll = wrong === 'all';
  for (let i = (at + skipped * stride - begin) / unit; i < units.length; i += step) {
    if ((((units[i] as number) & mask) === wanted) !== isAll) continue;
    if (running.count === 0) running.first = begin + i * unit;
    running.count++;
  }
}

/** Options of `verifyModel`. */
export interface VerifyModelOptions extends FormatSidecars, Pick<WorkOptions, 'onProgress' | 'signal'> {}

/**
 * Reads all of a model and reports its errors: scales that are NaN or infinite, bits outside of any code, parts that do not fit each other,
 * a config.json that contradicts the model. Needs no wasm. A file with a wrong header cannot be opened; the error names the mistake.
 * @example const { problems } = await verifyModel('model.gguf');
 * @throws what `inspectModel` throws; ScalepointError `CHANGED`; the signal's reason if it was aborted
 */
export async function verifyModel(file: ModelInput, options: VerifyModelOptions = {}): Promise<VerifyReport> {
  checkOptions(options, modelCalls().verifyModel, modelCalls());
  checkWorkOptions(options as WorkOptions);
  for (const name of optionNames(true)) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value === undefined || (typeof value === 'object' && value !== null && !Array.isArray(value))) continue;
    throw typeError(name, ofType('object of a JSON file'), value);
  }
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(file, own, async ({ format, model }) => {
      const tensors = await format.tensors(model);
      const findings: Finding[] = [...(format.verify?.(model, tensors, own) ?? [])];
      // Find the checks of each stored tensor.
      const checks = new Map<string, readonly BitCheck[]>();
      for (const { shape, form, parts } of tensors) {
        for (const { role, tensor } of parts) {
          const found = codecOf(form).checks?.(shape, form, role) ?? [];
          const useful = found.filter(({ mask }) => mask !== 0);
          checks.set(tensor.name, useful);
        }
      }
      // Read stretches of files in chunks, into memory that is reused for the next chunk.
      const memory = new Uint8Array(chunkBytes);
      const neighbors = new Map(model.files.map((source) => [source, readNeighbors(source)]));
      async function* chunksOf(source: ByteSource, begin: number, end: number) {
        for (let at = begin; at < end; at += chunkBytes) {
          own.signal?.throwIfAborted();
          const chunk = memory.subarray(0, Math.min(chunkBytes, end - at));
          const small = end - begin < smallBytes ? neighbors.get(source) : undefined;
          // Copied, because units have to be aligned.
          if (small !== undefined) chunk.set(await small(begin, end));
          else await fillFrom(source, at, chunk);
          yield chunk;
        }
      }
      const reported = (index: number) => {
        const { name, bytes } = model.tensors[index] as SourceTensor;
        return { phase: 'verify', tensor: name, bytes } as const;
      };
      const progress = new TensorProgress(model.tensors.length, reported, own.onProgress);
      const fileName = (file: number) => (model.files.length > 1 ? { file: model.files[file]?.name ?? '' } : {});
      for (const [index, tensor] of model.tensors.entries()) {
        const running = (checks.get(tensor.name) ?? []).map((check): Running => ({ check, count: 0, first: 0 }));
        let done = 0;
        const { byteOffset, bytes } = tensor;
        if (bytes === 0) progress.add(index, 0);
        for await (const chunk of chunksOf(model.files[tensor.file] as ByteSource, byteOffset, byteOffset + bytes)) {
          for (const one of running) checkUnits(one, chunk, done);
          done += chunk.length;
          progress.add(index, chunk.length);
        }
        // Report the checks that found wrong units.
        for (const { check, count, first } of running) {
          if (count === 0) continue;
          const { kind, at, stride, one, many, container, isProblem } = check;
          const index = Math.floor((first - at) / stride);
          const where = container === undefined ? elementIndex(index, tensor.shape) : `${container} ${index}`;
          const text = count === 1 ? `1 ${one}, ${where}` : `${count} ${many}, the first at ${where}`;
          const offset = tensor.rearranged ? {} : { byteOffset: byteOffset + first };
          const severity = isProblem ? 'problem' : 'note';
          findings.push({
            severity,
            kind,
            text,
            tensor: tensor.name,
            count,
            index,
            ...offset,
            ...fileName(tensor.file),
          });
        }
      }
      // Compare the checksums that an index states with those of the files.
      for (const [i, stated] of (model.checksums ?? []).entries()) {
        const source = model.files[i];
        if (stated === undefined || source === undefined) continue;
        const sum = new Md5();
        for await (const chunk of chunksOf(source, 0, source.size)) sum.update(chunk);
        const found = sum.hex();
        if (found === stated.toLowerCase()) continue;
        const text = `its MD5 is ${found}, and the index says ${stated.slice(0, md5Digits)}`;
        findings.push({ severity: 'problem', kind: 'checksum', text, file: source.name, found, stated });
      }
      for (const file of model.files) await file.verify();
      return {
        format: format.name as ModelFormat,
        bytes: model.bytes,
        files: model.files.map(({ name }) => name ?? ''),
        tensors: model.tensors.length,
        problems: findings.filter(({ severity }) => severity === 'problem'),
        notes: findings.filter(({ severity }) => severity === 'note'),
      };
    }),
  );
}
