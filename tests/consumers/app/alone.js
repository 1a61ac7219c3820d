// The same in a page, on its main thread alone: for bundlers that know no workers.
import { run } from './app.js';

globalThis.answer = run().then(
  (result) => [result],
  (error) => [{ hash: String(error), note: '' }],
);
