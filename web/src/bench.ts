/** The benchmark: times the operations of the library, the memory limit and plain JavaScript in turns. It needs nothing but the library. */
export { type Limits, makeLimits } from './bench/limits.js';
export * as plain from './bench/plain.js';
export { type Contestant, type RaceOptions, race } from './bench/race.js';
export { type BenchPart, type BenchRow, benchParts, benchWeights } from './bench/row.js';
export { type BenchOptions, type BenchResult, runBench } from './bench/run.js';
