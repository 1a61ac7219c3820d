// Searches for the page, so that it never waits.
import { load } from 'scalepoint';
import { answerCalls } from '../shared/calls.js';
import { SearchEngine } from './engine.js';
import type { SearchStep } from './messages.js';
import type { Settings } from './settings.js';

type Report = (step: SearchStep) => void;

const engine = load().then((core) => new SearchEngine(core));
// Each call reports the failure.
engine.catch(() => {});

const calls = {
  /** Reads the vectors of a file, or makes some without one, and measures until all settings are. */
  async open(
    question: { readonly file: File | undefined; readonly settings: Settings },
    report: Report,
  ): Promise<void> {
    const { file, settings } = question;
    await (await engine).open(file, settings, report);
  },
  /** Measures these settings first. */
  want: async (settings: Settings, report: Report): Promise<void> => (await engine).want(settings, report),
};
export type SearchCalls = typeof calls;

answerCalls(calls);
