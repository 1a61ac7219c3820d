import type { Scalepoint } from 'scalepoint';

/** Values that the visitor drags in the figures, and the core that computes them. */
export interface FigureState {
  /** Undefined until it is loaded. */
  readonly core: Scalepoint | undefined;
  readonly number: number;
  readonly scale: number;
  readonly outlier: number;
  readonly clips: boolean;
  readonly group: number;
  readonly bend: number;
  /** The least number, in the figure of the zero point. */
  readonly least: number;
  /** Value of the code for -0. */
  readonly spare: number;
  /** Step of a product. */
  readonly step: number;
  /** Count of the changes of the colors. */
  readonly theme: number;
}

export const initialFigures: FigureState = {
  core: undefined,
  number: 0.62,
  scale: 0.6,
  outlier: 12,
  clips: false,
  group: 0,
  bend: 0,
  least: -0.5,
  spare: 0,
  step: 0,
  theme: 0,
};

/** Draws a part of the page if what it shows has changed. */
export type DrawPart<State> = (state: State, before: State | undefined) => void;
