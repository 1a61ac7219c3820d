// The core with SIMD lanes, through SIMDe.
import { repeatTests } from './native.js';

await repeatTests('scalepoint_tests_simd');
