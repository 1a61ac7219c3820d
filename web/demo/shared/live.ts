import { byId, setText } from './dom.js';

/** Delay before a sentence is announced. A moving slider changes faster than this, so it leads to one announcement. */
const restMilliseconds = 900;

let timer: ReturnType<typeof setTimeout> | undefined;

/** Announces a sentence to screen readers after a delay. A later call within the delay replaces it. */
export function announce(sentence: string, delay = restMilliseconds): void {
  clearTimeout(timer);
  timer = setTimeout(() => setText(byId('live', HTMLElement), sentence), delay);
}
