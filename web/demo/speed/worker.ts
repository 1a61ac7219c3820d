// Measures for the page: the worker keeps it responsive during a run, and keeps its work out of the measurements.
import { type BenchRow, runBench } from 'scalepoint/bench';
import { answerCalls } from '../shared/calls.js';
import { type HeadlineTurn, headlineFloats, measureHeadline } from './headline.js';

const calls = {
  headline: (_: undefined, onTurn: (turn: HeadlineTurn) => void) => measureHeadline(onTurn),
  async all({ quick }: { readonly quick: boolean }, onRow: (row: BenchRow) => void): Promise<void> {
    await runBench({ quick, ...(quick && { size: headlineFloats }), onRow: (row) => onRow(row) });
  },
};
export type BenchCalls = typeof calls;

answerCalls(calls);
