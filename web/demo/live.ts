import { byId, setText } from './dom.js';

/** Long enough that a moving slider says one sentence, when it has come to rest. */
const restMilliseconds = 900;

let timer: ReturnType<typeof setTimeout> | undefined;

/** Says something to screen readers, politely, once things have come to rest. Only the last sentence is said. */
export function announce(sentence: string, delay = restMilliseconds): void {
  clearTimeout(timer);
  timer = setTimeout(() => setText(byId('live', HTMLElement), sentence), delay);
}
