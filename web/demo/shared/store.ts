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
  let frame = 0;
  // Another page may take the place of this one in the document.
  const main = document.querySelector('main');
  const redraw = () => {
    cancelAnimationFrame(frame);
    frame = 0;
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
      if (frame === 0) frame = requestAnimationFrame(redraw);
    },
  };
}
