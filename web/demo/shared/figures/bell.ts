import { generate } from '../generate.js';

/** Bell-shaped numbers for the figures, like the weights of most layers. */
export const bell = generate({ distribution: 'normal', size: 2048, seed: 5, rowsDiffer: false });

/** The largest magnitude of the bell. */
export const reach = bell.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
