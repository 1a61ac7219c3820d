import { onFrame } from './dom.js';

/** State in one place, as plain data. The drawing is a function of it. */
export interface Store<State> {
  get(): State;
  /** Replaces some members. The page is drawn with the next frame. */
  set(change: Partial<State>): void;
  /** Draws at once. */
  draw(): void;
}

/**
 * Makes a store.
 * @param draw gets the state, and the one that was drawn before
 */
export function createStore<State extends object>(
  initial: State,
  draw: (state: State, before: State | undefined) => void,
): Store<State> {
  let state = initial;
  let drawn: State | undefined;
  let cancel: (() => void) | undefined;
  // Another page may take the place of this one in the document.
  const main = document.querySelector('main');
  const redraw = () => {
    cancel?.();
    cancel = undefined;
    if (main?.isConnected === false) return;
    const before = drawn;
    drawn = state;
    draw(state, before);
  };
  return {
    get: () => state,
    draw: redraw,
    set(change) {
      state = { ...state, ...change };
      cancel ??= onFrame(redraw);
    },
  };
}
