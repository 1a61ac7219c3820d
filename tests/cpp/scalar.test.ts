// The core with scalar lanes.
import { repeatTests } from './native.js';

await repeatTests('scalepoint_tests_scalar');
