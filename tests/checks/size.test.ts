// The sizes of the package. Compressing it takes long, so `npm test` leaves this to `npm run test:full`.
import { it } from 'vitest';
import { check } from './check.js';

it('npm run check:size', () => check('check:size'));
