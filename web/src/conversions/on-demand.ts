/** The code that converts models. It is loaded with the first model that is converted. */
export { convertDiffusion } from './diffusion/convert.js';
export { architectureNames, carryOutAll, convertHuggingface, weightNames } from './huggingface/convert.js';
export { convertWebllm } from './webllm/convert.js';
