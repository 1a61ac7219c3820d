// The headline: from an array of floats to one of int8, beside the same in plain JavaScript, in many turns.
import { load } from 'scalepoint';
import { benchWeights, plain, race } from 'scalepoint/bench';

/** A turn: milliseconds of one call of each. */
export interface HeadlineTurn {
  readonly ours: number;
  readonly plain: number;
}

/** Floats of the headline: more than caches near a core hold, as in models. */
export const headlineFloats = 4 * 2 ** 20;
/** Number of turns. */
const headlineTurns = 15;

/** Calls `onTurn` after each turn. Samples of both are about equally long, so that other work disturbs them alike. */
export async function measureHeadline(onTurn: (turn: HeadlineTurn) => void): Promise<void> {
  const sp = await load();
  const x = benchWeights(headlineFloats);
  const codes = new Int8Array(headlineFloats);
  const contestants = {
    ours: () => sp.quantize(x, { scheme: 'asymmetric', out: codes }),
    plain: plain.rangeAndQuantize.bind(undefined, x, codes),
  };
  const warm = await race(contestants, { rounds: 1, warmupMs: 400 });
  const repeat = Math.max(1, Math.round(warm.plain / warm.ours));
  const time = (run: () => unknown, times: number) => {
    const begin = performance.now();
    for (let i = 0; i < times; i++) run();
    return (performance.now() - begin) / times;
  };
  for (let i = 0; i < headlineTurns; i++) {
    onTurn({ ours: time(contestants.ours, repeat), plain: time(contestants.plain, 1) });
    await new Promise((done) => setTimeout(done));
  }
  sp.dispose();
}
