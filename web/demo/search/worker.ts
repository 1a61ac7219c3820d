// Searches for the page, so that it never waits.
import { load } from 'scalepoint';
import { failureText } from '../shared/problems.js';
import { SearchEngine } from './engine.js';
import type { SearchReply, SearchRequest } from './messages.js';

const say = (reply: SearchReply) => self.postMessage(reply);
const fail = (error: unknown) => say({ kind: 'failed', text: failureText(error) });

const engine = load({ index: true }).then((core) => {
  say({ kind: 'core', facts: { version: core.version, simd: core.simd, buildId: core.buildId } });
  return new SearchEngine(core, say);
});
engine.catch(fail);

self.onmessage = async ({ data }: MessageEvent<SearchRequest>) => {
  try {
    const made = await engine;
    if (data.kind === 'want') made.want(data.settings);
    else await made.open(data.file);
  } catch (error) {
    fail(error);
  }
};
