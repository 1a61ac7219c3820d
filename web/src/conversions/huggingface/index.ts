/** Folders of Hugging Face to GGUF. */
export { architectures } from './architectures.js';
export { type ConvertOptions, convertHuggingface } from './convert.js';
