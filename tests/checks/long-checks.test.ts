// The checks that `npm test` leaves to `npm run test:full`: they read the whole tree, or compress the package.
import { it } from 'vitest';
import { check, longChecks } from './check.js';

it.each(longChecks)('npm run %s', check);
