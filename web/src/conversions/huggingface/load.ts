/** The conversion of folders, in the same chunk as its caller. The page has `load-on-demand.ts` in its place (vite.config.ts). */
import * as conversion from './convert.js';

export const loadConversion = async () => conversion;
