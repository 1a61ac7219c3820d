/** Reads the contents of model files: their headers, and single tensors. */
import type { NewParameters } from '../arrays/options.js';
import type { BlockTensor, LinearQuantizedTensor } from '../arrays/tensor.js';
import { typeError } from '../core/errors.js';
import { withCallbacks } from './callbacks.js';
import { type Opened, withModel } from './open.js';
import { describeModel, type FloatTensor, type ModelInfo, readAsFloats, readCodes } from './read.js';
import type { ModelInput, OpenOptions } from './recognize.js';
import type { WorkOptions } from './start.js';
import { readNamed, readStored, type Tensor } from './stored-tensor.js';
import { checkOptions, checkWorkOptions, workNames } from './work-options.js';

/** Checks the options of a call that makes no file. */
function checkReadOptions(options: WorkOptions): void {
  checkOptions(options, workNames);
  checkWorkOptions(options);
  options.signal?.throwIfAborted();
}

function checkOpenOptions(options: OpenOptions): void {
  checkOptions(options, ['signal']);
  checkWorkOptions(options as WorkOptions);
}

function checkName(name: unknown): void {
  if (typeof name === 'string') return;
  throw typeError('name', { kind: 'text', form: 'the name of a tensor', examples: ['fc1.weight'] }, name);
}

/**
 * Lists the contents of a model. Reads headers only, and recognizes the format by the content, not by the name. Takes at most four times
 * the memory of the header, and 1 KiB for each tensor and each key of its metadata.
 * @example const { tensors } = await inspectModel('model.safetensors');
 * @throws ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE` or `IO`; TypeError if `file` is not a readable input; the signal's reason
 */
export async function inspectModel(file: ModelInput, options: OpenOptions = {}): Promise<ModelInfo> {
  checkOpenOptions(options);
  return withModel(file, options, async (opened) => {
    const info = await describeModel(opened);
    // Errors of files beside the model are ignored.
    options.signal?.throwIfAborted();
    return info;
  });
}

/**
 * Reads one tensor of a model file into a new array. The calls of `scalepoint` take floats and blocks of ggml as they are.
 * @example const q = sp.quantize(await readTensor('model.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`, and what `inspectModel` throws
 */
export async function readTensor(file: ModelInput, name: string, options: OpenOptions = {}): Promise<Tensor> {
  checkName(name);
  checkOpenOptions(options);
  return withModel(file, options, (opened) => readNamed(opened.model, name));
}

/**
 * Reads all tensors of a model file one by one, in the order of their bytes. The file is open until the loop ends.
 * @example for await (const tensor of tensors('model.safetensors')) console.log(tensor.name, tensor.data.length);
 * @throws what `inspectModel` throws
 */
export async function* tensors(file: ModelInput, options: OpenOptions = {}): AsyncGenerator<Tensor, void, void> {
  checkOpenOptions(options);
  let close = () => {};
  const closed = new Promise<void>((resolve) => {
    close = resolve;
  });
  let work: Promise<void> | undefined;
  const opened = await new Promise<Opened>((resolve, reject) => {
    work = withModel(file, options, (model) => {
      resolve(model);
      return closed;
    });
    work.catch(reject);
  });
  try {
    for (const tensor of opened.model.tensors) yield await readStored(opened.model, tensor);
  } finally {
    close();
    await work;
  }
}

/**
 * Reads one tensor of a model file into a new array of floats: floats of any type; codes with their scales and zero
 * points, by the name of the weight (`X.weight`, also where the file holds `X.weight_packed`); blocks of GGUF.
 * @example const { shape, data } = await readFloats('model.int8.safetensors', 'conv1.weight');
 * @throws ScalepointError `NOT_FOUND`; `UNSUPPORTED_DTYPE` if the tensor does not stand for floats; and what `inspectModel` throws
 */
export async function readFloats(file: ModelInput, name: string, options: WorkOptions = {}): Promise<FloatTensor> {
  checkName(name);
  checkReadOptions(options);
  return withCallbacks(options, (own) => withModel(file, own, (opened) => readAsFloats(opened, name, own)));
}

/**
 * Reads one quantized tensor of a model file as `scalepoint` has it, for `dequantize`, `compare` or `linear`: integer codes by the name of
 * the weight, or blocks of GGUF.
 * @example const layer = sp.linear(await readQuantized('model.int4.safetensors', 'fc1.weight'));
 * @throws ScalepointError `NOT_FOUND`; `UNSUPPORTED_DTYPE` if the tensor has no integer codes; and what `inspectModel` throws
 */
export async function readQuantized(
  file: ModelInput,
  name: string,
  options: OpenOptions = {},
): Promise<(LinearQuantizedTensor<Int8Array<ArrayBuffer>> & NewParameters) | BlockTensor<Uint8Array<ArrayBuffer>>> {
  checkName(name);
  checkOpenOptions(options);
  return withModel(file, options, (opened) => readCodes(opened, name));
}
