// The address of the page and its history.

/** A step of the history: the place that it shows, counted by one visit. */
export interface Step {
  /** Tells visits apart: steps outlive a reload of the page, its models do not. */
  readonly visit: number;
  readonly at: number;
  /** Identity of the place among the models that the browser can open again: see `keepModel`. */
  readonly kept?: string;
}

/** The address, and the ways through its history. */
export interface Address {
  /** The settings in the address, with `#`, or an empty text. */
  readonly hash: string;
  /** The step on show; undefined at first, and if the address was edited by hand. */
  readonly step: Step | undefined;
  /** Adds a step with settings. Steps that lie ahead are gone. */
  push(step: Step, hash: string): void;
  replace(step: Step, hash: string): void;
  back(): void;
  /** @param onStep is called after the visitor went to another step; without one if the address was edited by hand */
  listen(onStep: (step: Step | undefined) => void): void;
}

export function isStep(state: unknown): state is Step {
  return typeof state === 'object' && state !== null && 'visit' in state && 'at' in state;
}

/** The address of this document. */
export function pageAddress(): Address {
  // Another page of the site may take the place of this one, with an address of its own.
  const { pathname } = location;
  const withHash = (hash: string) => `${pathname}${hash && `#${hash}`}`;
  return {
    get hash() {
      return location.hash;
    },
    get step() {
      return isStep(history.state) ? history.state : undefined;
    },
    push: (step, hash) => history.pushState(step, '', withHash(hash)),
    replace: (step, hash) => history.replaceState(step, '', withHash(hash)),
    back: () => history.back(),
    listen(onStep) {
      addEventListener('popstate', () => {
        if (location.pathname === pathname) onStep(isStep(history.state) ? history.state : undefined);
      });
    },
  };
}
