import type { HeldData } from './engine.js';
import type { Settings } from './settings.js';
import type { NumbersView, ViewRequest } from './view.js';

/** State of the page. The drawing is a function of it. */
export interface State {
  settings: Settings;
  /** The visitor's own data, once there are any. */
  own: HeldData | undefined;
  /** The newest answer of the worker. Sections that take longer are added to it when the controls rest. */
  view: NumbersView | undefined;
  /**
   * Position of the number line's view, from 0 (lowest code) to 1 (highest). As a fraction it fits every bit width. Undefined until the
   * visitor moves it.
   */
  lineAt: number | undefined;
  /** The rows of the table to show. */
  row: ViewRequest['row'];
  /** The selected bar of the histogram. */
  bar: number | undefined;
}
