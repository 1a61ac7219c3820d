/** The code that reads ONNX models and plans results. It is loaded with the first model. */
export { jsonBeside } from '../safetensors/stored-model.js';
export { openOnnx } from './file/model.js';
export { readConstants } from './graph/constants.js';
export { onnxLogicalTensors } from './graph/logical.js';
export { planOnnx } from './plan.js';
