// The same, inside of a worker of a page.
import { run } from './app.js';

run().then(
  (result) => postMessage(result),
  (error) => postMessage({ hash: String(error), note: '' }),
);
