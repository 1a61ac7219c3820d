// The memory of a layer: its weights, packed for the core, stay in wasm memory until the layer is disposed of.

import { ActivationTypeId, LayerSpecRecord, PackedLayerRecord } from '../core/door.js';
import { disposedError, outOfMemory, rangeError } from '../core/errors.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import { checkMatrix } from './job.js';
import type { Weights } from './kind.js';
import { addressOf, type Source } from './source.js';

/** The form of a layer, which decides about its size and its arithmetic. */
type LayerForm = Omit<LayerSpecRecord, 'rows' | 'columns'> & { readonly outputs: number; readonly inputs: number };

/** The form of float weights. */
export function floatForm(outputs: number, inputs: number): LayerForm {
  return { outputs, inputs, groupSize: inputs, bits: 32, zeroPoints: false, activations: ActivationTypeId.float32 };
}

/** Bound of outputs and inputs. More do not fit into wasm memory. */
const most = 2 ** 31;

/** A layer in wasm memory. Its weights are undefined until they are filled in. */
export class LayerMemory {
  readonly outputs: number;
  readonly inputs: number;
  /** Bytes of the weights. */
  readonly bytes: number;
  /** Address of a PackedLayer. The weights are behind it. */
  readonly layer: number;
  readonly #core: Core;
  #alive = true;

  /**
   * @param zeroPoint that of all codes, unless each scale has one of its own
   * @throws ScalepointError `OUT_OF_MEMORY`
   */
  constructor(core: Core, form: LayerForm, zeroPoint = 0) {
    this.#core = core;
    const { outputs, inputs, groupSize, bits, zeroPoints, activations } = form;
    this.outputs = outputs;
    this.inputs = inputs;
    if (outputs > most || inputs > most) {
      throw outOfMemory(`${outputs} x ${inputs} weights`);
    }
    const spec = { rows: outputs, columns: inputs, groupSize, bits, zeroPoints, activations };
    this.bytes = core.withRecord(LayerSpecRecord, spec, (at) => core.module.layerBytes(at));
    this.layer = core.allocate(PackedLayerRecord.bytes + this.bytes);
    const weights = this.layer + PackedLayerRecord.bytes;
    PackedLayerRecord.write(core.module, this.layer, { spec, weights, bytes: this.bytes });
    checkStatus(core.module.makeLayer(this.layer, zeroPoint));
  }

  /** Calls f for as many rows at a time as a tile holds. ownBytes: bytes that f needs at `own` for `rows` rows. */
  forRows(ownBytes: (rows: number) => number, f: (row: number, rows: number, own: number) => void): void {
    // Eight rows at once are fastest.
    const step = Math.min(this.outputs, Math.max(8, Math.floor(tileSize / this.inputs / 8) * 8));
    this.#core.withMemory(ownBytes(step), (own) => {
      for (let row = 0; row < this.outputs; row += step) f(row, Math.min(step, this.outputs - row), own);
    });
  }

  setBias(bias: Source): void {
    const core = this.#core;
    core.withMemory(this.outputs * 4, (own) => {
      const at = addressOf(core, bias, 0, this.outputs, 4, own);
      checkStatus(core.module.setLayerBias(this.layer, at, this.outputs));
    });
  }

  /** @throws ScalepointError `DISPOSED` */
  checkAlive(what: string): void {
    if (!this.#alive || this.#core.disposed) throw disposedError(what);
  }

  dispose(): void {
    if (this.#alive) this.#core.release(this.layer);
    this.#alive = false;
  }
}

/** Float weights of that shape. @throws RangeError naming `shape` */
export function floatWeights(core: Core, source: Source, shape: readonly number[]): Weights {
  const [outputs, inputs] = checkMatrix(shape, 'shape');
  if (!Number.isSafeInteger(outputs) || !Number.isSafeInteger(inputs) || outputs * inputs !== source.length) {
    throw rangeError('shape', { kind: 'shape', elements: source.length }, shape);
  }
  return {
    ...floatForm(outputs, inputs),
    zeroPoint: 0,
    ownBytes: (rows) => rows * inputs * 4,
    fill: (layer, row, rows, own) => {
      const from = addressOf(core, source, row * inputs, rows * inputs, 4, own);
      checkStatus(core.module.setLayerFloats(layer, row, from, rows * inputs));
    },
  };
}
