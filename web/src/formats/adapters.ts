/** Adapters (LoRA) for the weights of models, for the rooms that do not know how they are stored. Loaded for models with adapters alone. */
export { type Adapter, readAdapter } from './adapters/adapter.js';
export { adapterNote, mergeAdapters } from './adapters/merge.js';
