import { copy } from './copy.js';
import { byId } from './dom.js';
import { html, nothing, render, repeat, type TemplateResult } from './template.js';

/** An action against a problem. */
export interface ProblemAction {
  readonly label: string;
  readonly run: () => void;
}

/** An error, explained to the visitor. */
export interface PageProblem {
  /** The event in a few words. */
  readonly title: string;
  /** Place, cause, and what to do now. */
  readonly text: string;
  readonly action?: ProblemAction;
  /** Ways to go on, of which the visitor takes one. */
  readonly choices?: readonly ProblemAction[];
  /** Facts for a report about it, beyond the text. */
  readonly details?: string;
  /** True if nothing went wrong, so that there is nothing to report. */
  readonly isExpected?: true;
}

/** A file problem stays until the next file is opened or the visitor closes it. A settings problem goes when the settings change. */
export type ProblemSlot = 'file' | 'settings';

const shown = new Map<ProblemSlot, PageProblem>();
const keyOf = ({ title, text }: PageProblem) => `${title}\n${text}`;

/** Facts for a report about a problem. It names only the files that the message names. */
function detailsOf(problem: PageProblem): string {
  const [version, build, tier] = ['version', 'build', 'tier'].map(
    (part) => byId(`about-${part}`, HTMLElement).textContent,
  );
  const own = problem.details === undefined ? '' : `\n${problem.details}`;
  return `${keyOf(problem)}${own}\n\nScalepoint ${version}, build ${build}${tier}\n${navigator.userAgent}\n`;
}

function cardView(slot: ProblemSlot, problem: PageProblem): TemplateResult {
  const { title, text, action, choices = [], isExpected } = problem;
  const button = (label: string, run: () => void) => html`<button type="button" @click=${run}>${label}</button>`;
  return html`<div class="problem" data-slot=${slot}><p><strong>${title}</strong></p><p>${text}</p>${choices.length === 0 ? nothing : html`<div class="row choices">${choices.map(({ label, run }) => button(label, run))}</div>`}<div class="row"
    >${action && button(action.label, action.run)}${
      isExpected ? nothing : button('Copy details', () => void copy(detailsOf(problem), 'Details'))
    }${slot === 'file' ? button('Close', () => showProblem('file')) : nothing}</div></div>`;
}

/** Shows a problem in its slot, or clears the slot. Showing the same problem again changes nothing, so it is announced once. */
export function showProblem(slot: ProblemSlot, problem?: PageProblem): void {
  const before = shown.get(slot);
  if ((before && keyOf(before)) === (problem && keyOf(problem))) return;
  const container = byId('problems', HTMLElement);
  const cardOf = () => container.querySelector(`[data-slot="${slot}"]`);
  // If a button of the message has the focus, the focus moves to the result instead of the top of the page.
  if (cardOf()?.contains(document.activeElement))
    (document.getElementById('result') ?? byId('main', HTMLElement)).focus({ preventScroll: true });
  shown.delete(slot);
  if (problem !== undefined) shown.set(slot, problem);
  const cards = repeat(
    shown,
    ([, each]) => keyOf(each),
    ([place, each]) => cardView(place, each),
  );
  render(cards, container);
  // A file can be dropped while the page is scrolled down, where its message would not be seen.
  if (slot === 'file') cardOf()?.scrollIntoView({ block: 'nearest' });
}

/** A message as a sentence, with the place of the error before the full stop. Messages of browsers may have a full stop already. */
export function asSentence(message: string, place = ''): string {
  return `${message.replace(/\.$/, '')}${place}.`;
}

/** The begin of a message that keeps its case: a name of a file or a program. */
const ownCase = /^([\w-]+\.\w|onnxruntime)/;

/** A message of the package, which begins in lower case, as a sentence. */
export function sentence(message: string): string {
  if (ownCase.test(message)) return asSentence(message);
  return asSentence(`${message[0]?.toUpperCase() ?? ''}${message.slice(1)}`);
}

/** Names of errors of the engine. Their messages speak to developers. Those of the package about options have the option as data. */
const engineErrors = /^(?:Type|Range|Reference|Syntax|Runtime|Compile|Link|Internal)Error$/;

/** True for an error of the engine, such as “offset is out of bounds”: something that this page did not expect. */
function isUnexpected(error: unknown): error is Error {
  const { name = '', code, problem } = (error ?? {}) as { name?: string; code?: unknown; problem?: unknown };
  return engineErrors.test(name) && problem === undefined && typeof code !== 'string';
}

/** True for an error of the engine about a file of the page that did not come. */
const isLostPart = ({ message }: Error) => /import|fetch|load|network/i.test(message);

/** The message of a thrown value of any type, for visitors. */
export function messageOf(error: unknown): string {
  if (isUnexpected(error)) {
    return isLostPart(error)
      ? 'a part of this page could not be loaded. Check the connection and load the page again'
      : 'this page met an error of its own. Load it again';
  }
  return error instanceof Error ? error.message : String(error);
}

/** Facts for a report about an error that the page did not expect; nothing for others. */
export const detailsOfError = (error: unknown): Pick<PageProblem, 'details'> =>
  isUnexpected(error) ? { details: `${error.name}: ${error.message}` } : {};

/** Codes of errors of loading, with texts in place of the messages, which speak to developers. An error from a worker has the code, but not the class. */
const loadingTexts: Readonly<Record<string, string>> = {
  WASM_LOAD: 'A file of this page could not be fetched or started. Check the connection and load the page again.',
  CSP: 'The server of this page forbids WebAssembly: the script-src of its Content-Security-Policy lacks “wasm-unsafe-eval”.',
};

/** The text for a browser without WebAssembly. */
const offText =
  'WebAssembly is switched off in this browser, and this site computes with it. Allow it for this site, as in the settings of a lockdown mode, and load the page again.';

/** The text for an error of loading the core; undefined for other errors. */
export function loadingText(error: unknown): string | undefined {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (typeof message === 'string' && /WebAssembly is not defined/.test(message)) return offText;
  return typeof code === 'string' && Object.hasOwn(loadingTexts, code) ? loadingTexts[code] : undefined;
}

/** An error as a sentence for the visitor. */
export const failureText = (error: unknown): string => loadingText(error) ?? sentence(messageOf(error));

/** Explains why the core did not load. */
export function explainLoading(error: unknown): PageProblem {
  const own = isUnexpected(error)
    ? `${sentence(messageOf(error))} A current browser is needed.`
    : `${sentence(messageOf(error))} Check the connection and load the page again; a current browser is needed.`;
  return {
    title: 'The core did not load, so nothing can be quantized here',
    text: loadingText(error) ?? own,
    ...detailsOfError(error),
    action: { label: 'Load again', run: () => location.reload() },
  };
}
