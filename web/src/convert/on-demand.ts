/** The code of commands that few apps call. It is loaded with the first call of one. */
export { compareOpen } from './compare.js';
export { repairOpen } from './repair.js';
export { verifyOpen } from './verify.js';
