// `npm run fuzz`: damages files at random and gives them to the readers, for as long as wanted. Each round has seeds of its own.
//
//   npm run fuzz -- [--minutes 10] [--round 1]      begins with that round; a round that fails ends the run and is named

import { parseArgs } from 'node:util';
import { root, run } from './steps.mjs';

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, round: { type: 'string', default: '1' } },
});
const minutes = Number(values.minutes);
let round = Number(values.round);
if (!(minutes > 0) || !Number.isInteger(round) || round < 1) {
  console.error('Usage: npm run fuzz -- [--minutes N] [--round N]');
  process.exit(2);
}
const end = Date.now() + minutes * 60_000;
const first = round;
do {
  const args = ['run', '--project', 'node', '--root', root, 'tests/fuzz'];
  const { code, output } = await run('node_modules/.bin/vitest', args, { SCALEPOINT_FUZZ: String(round) });
  if (code !== 0) {
    console.error(output);
    console.error(`Round ${round} failed. To run it again: npm run fuzz -- --round ${round} --minutes 0.001`);
    process.exit(1);
  }
  console.log(`round ${round}: all files were read or refused as they should be`);
  round++;
} while (Date.now() < end);
console.log(`${round - first} rounds, 0 failed`);
