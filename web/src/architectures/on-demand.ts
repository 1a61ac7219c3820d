/** The code that converts models. It is loaded with the first model that is converted. */
export { convertDiffusion } from './diffusion/convert.js';
export { architectureIn, convertFolder, folderNames } from './folder-to-gguf.js';
export { convertWebllm } from './webllm/convert.js';
