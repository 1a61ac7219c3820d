// Durations, closeness and reports as text.
import type { TensorReport } from 'scalepoint/model';
import type { Preset } from '../../src/tooling.js';
import { formatDecibels } from '../shared/format.js';

export const presetTitles: Readonly<Record<Preset, string>> = { small: 'Small', balanced: 'Balanced', safe: 'Safe' };

/** A duration for people: `0.4 s`, `1 min 5 s`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 9.95) return `${seconds < 0.05 ? '< 0.1' : seconds.toFixed(1)}\u00a0s`;
  const whole = Math.ceil(seconds);
  const rest = whole % 60 === 0 ? '' : ` ${whole % 60}\u00a0s`;
  return whole < 60 ? `${whole}\u00a0s` : `${Math.floor(whole / 60)}\u00a0min${rest}`;
}

/** The share that is done before the time left is shown. */
const leastShare = 0.02;

/** Estimated seconds until work is done; undefined at its begin. @param begin by `performance.now()` */
export function secondsLeft(share: number, begin: number): number | undefined {
  const seconds = (performance.now() - begin) / 1000;
  return share > leastShare ? (seconds / share) * (1 - share) : undefined;
}

/** The end of a line of progress: `, about 5 s left`. */
export const leftText = (seconds: number | undefined): string =>
  seconds === undefined ? '' : `, about ${formatSeconds(seconds)} left`;

/** Closeness of weights with this SQNR to the original, in words. It does not predict the quality of the network. */
export function closeness(sqnrDb: number): string {
  if (sqnrDb >= 45) return 'hardly any loss';
  if (sqnrDb >= 30) return 'very close';
  if (sqnrDb >= 18) return 'close';
  return 'rough';
}

/** Decibels in few digits, for cards: `31 dB`. */
export function shortDecibels(sqnrDb: number): string {
  return Number.isFinite(sqnrDb) ? `${Math.round(sqnrDb)} dB` : formatDecibels(sqnrDb);
}

/** The report as CSV for spreadsheets. */
export function csvOf(tensors: readonly TensorReport[]): string {
  const head = 'tensor,shape,from,to,bytes before,bytes after,sqnr dB,mse,cosine,largest error,kept because';
  const text = (value: string) => `"${value.replace(/"/g, '""')}"`;
  const rows = tensors.map(({ name, shape, from, to, bytesBefore, bytesAfter, error, kept }) =>
    [
      text(name),
      text(shape.join('x')),
      from,
      to,
      bytesBefore,
      bytesAfter,
      error?.sqnrDb ?? '',
      error?.mse ?? '',
      error?.cosine ?? '',
      error?.maxAbsoluteError ?? '',
      text(kept?.text ?? ''),
    ].join(','),
  );
  return `${[head, ...rows].join('\r\n')}\r\n`;
}
