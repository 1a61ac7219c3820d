/** The code that converts models. It is loaded with the first model that is converted. */
export { convertDiffusion } from './diffusion/convert.js';
export { architectureNames, carryOutAll, convertHuggingface, weightNames } from './huggingface/convert.js';
export { convertTower, type TowerTarget } from './huggingface/vision/convert.js';
export { planTower } from './huggingface/vision/plan.js';
export { convertWebllm } from './webllm/convert.js';
