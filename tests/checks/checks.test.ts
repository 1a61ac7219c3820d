// The checks of `npm test`: each script of package.json that is named `check:…`, apart from that of the sizes, has to succeed.
import { it } from 'vitest';
import { check, checks } from './check.js';

it.each(checks.filter((name) => name !== 'check:size'))('npm run %s', check);
