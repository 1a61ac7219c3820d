// The same outside of pages.
import { run } from './app.js';

const print = (result) => console.log(JSON.stringify([result]));
run().then(print, (error) => print({ hash: String(error?.stack ?? error), note: '' }));
