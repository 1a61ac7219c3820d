// The checks of `npm test`: each script of package.json that is named `check:…`, apart from the long ones, has to succeed.
import { it } from 'vitest';
import { check, checks, longChecks } from './check.js';

it.each(checks.filter((name) => !longChecks.includes(name)))('npm run %s', check);
