import type { PageProblem } from '../shared/problems.js';
import type { HeldData } from './engine.js';
import type { Settings } from './settings.js';
import type { NumbersView, Section, ViewRequest } from './view.js';

/** Sections that are computed when the controls rest, one after the other, so that a change waits for one of them at most. */
export const slowSections = ['ladder', 'clipping', 'codes'] as const satisfies readonly Section[];

/** State of the page. The drawing is a function of it. */
export interface State {
  settings: Settings;
  /** The visitor's own data, once there are any. */
  held: HeldData | undefined;
  /** The newest answer of the worker. */
  view: NumbersView | undefined;
  /** The newest of each slow section. */
  slow: Partial<Pick<NumbersView, (typeof slowSections)[number]>>;
  /**
   * Position of the number line's view, from 0 (lowest code) to 1 (highest). As a fraction it fits every bit width. Undefined until the
   * visitor moves it.
   */
  lineAt: number | undefined;
  /** The rows of the table to show. */
  row: ViewRequest['row'];
  /** The selected bar of the histogram. */
  bar: number | undefined;
  readonly open: Set<Section>;
  /** The reason that the page does not compute, or cannot save. It goes with the next view. */
  problem: PageProblem | undefined;
  /** True while the page computes or reads. */
  isBusy: boolean;
}

/** Actions of the views of the page. */
export interface PageEvents {
  /** Changes settings. @param isMoving true for a control that moves through many values */
  change(settings: Partial<Settings>, control: string, isMoving?: boolean): void;
  /** Changes the state apart from the settings, and asks for a view if that needs one. */
  set(change: Partial<State>, needs?: 'view' | 'moving view' | 'resized view'): void;
}
