/** Reads one tensor of a plan before and after its conversion, without the rest of the result. */

import { RoleId } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import type { ErrorMeasures } from '../core/measure.js';
import { waitingFor } from '../core/waiting.js';
import { codecOf, partsOf } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import type { LogicalTensor } from '../formats/format.js';
import { sampleRows } from './estimate.js';
import { unreadable } from './inspect-model.js';
import { withModel } from './open.js';
import { planFor } from './plan.js';
import { fitted, type PlanOptions } from './plan-model.js';
import type { ModelInput } from './recognize.js';
import { type WorkOptions, withCallbacks } from './work-options.js';
import { makeTensor, tensorFloats } from './writing.js';

/** A tensor before and after its conversion. */
interface PlannedFloats {
  /** The shape of both; of a sample, fewer rows than the tensor has. */
  readonly shape: readonly number[];
  /** The floats that are converted, in the order of the result. */
  readonly before: Float32Array<ArrayBuffer>;
  /** The floats that the result stands for. */
  readonly after: Float32Array<ArrayBuffer>;
  /** Size of its parts in the result, scales included. */
  readonly bytes: number;
  /** The error, as `estimateModel` measures it. */
  readonly error: ErrorMeasures;
}

/**
 * Reads a tensor of a plan: the floats before its conversion, and those that its codes stand for.
 * @param name its name in the result
 * @param most read about as many elements, from the middle
 * @throws ScalepointError `NOT_FOUND` if the plan keeps the tensor, `UNSUPPORTED_DTYPE`; and what `estimateModel` throws
 */
export async function readPlanned(
  file: ModelInput,
  name: string,
  options: PlanOptions & WorkOptions & { readonly most?: number },
): Promise<PlannedFloats> {
  const { most = Number.POSITIVE_INFINITY, ...others } = options;
  return withCallbacks(others, (own) =>
    withModel(file, own, async (opened) => {
      const plan = await planFor(opened, (await fitted(opened, own, own)).choices);
      const found = plan.tensors.find(({ source, kept }) => source.name === name && kept === undefined);
      if (found === undefined) {
        throw new ScalepointError('NOT_FOUND', `the plan converts no tensor ${quoted(name)}`, { tensor: name });
      }
      const { files } = opened.model;
      const source = sampleRows(found.source, most);
      const { form } = found;
      const { decode, label } = codecOf(form);
      if (decode === undefined) {
        throw unreadable(name, `${label(form)} is not a readable float type`);
      }
      const parts = source === found.source ? found.parts : partsOf(source.shape, form);
      const waiting = waitingFor(own.signal);
      const statistics = plan.moments === undefined ? undefined : await openWithin(waiting, plan.moments);
      try {
        const inputs = statistics === undefined ? files : [...files, statistics];
        const { bytes, places, error } = await makeTensor({ ...found, source, parts }, plan, inputs, own);
        // The codes are read as a reader of the result does, which takes no shapes and names of types from parts.
        const stored: LogicalTensor = {
          name,
          shape: source.shape,
          type: label(form),
          form,
          parts: parts.flatMap(({ role, dtype, shape, bytes: size }) => {
            const byteOffset = places.get(role) as number;
            const tensor = { name, dtype, shape, bytes: size, byteOffset, file: 0 };
            return Object.hasOwn(RoleId, role) ? [{ role, tensor }] : [];
          }),
        };
        return {
          shape: source.shape,
          before: await tensorFloats(source, plan.format, files, own),
          after: await tensorFloats(stored, plan.format, [await openWithin(waiting, bytes)], own),
          bytes: bytes.length,
          error: error as ErrorMeasures,
        };
      } finally {
        await statistics?.close();
        waiting.end();
      }
    }),
  );
}
