// Panel that pushes a saved result to the hub: the repository, the account, the progress, and the outcome.
import type { PushResult } from 'scalepoint/model';
import { hubNameText, namesAlong } from '../../src/tooling.js';
import { callWorker, isEnded } from '../shared/calls.js';
import { jsonBlob } from '../shared/copy.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { isOnHub } from '../shared/page-files.js';
import { messageOf, type PageProblem } from '../shared/problems.js';
import { html, live, nothing, type TemplateResult } from '../shared/template.js';
import { readersOf, settingsFile } from './actions-panel.js';
import { commandOf, formatFor, infoOf, makesFolder, usualRepository, weightsIn } from './choice.js';
import { explainPush } from './explain.js';
import { hubApp, storedToken, storeToken } from './hub-link.js';
import type { PushCalls } from './push-worker.js';
import type { ModelSession } from './session.js';
import { signInToPush } from './sign-in.js';
import type { OpenState, SavedRun, State } from './state.js';
import { packageError } from './workers.js';

/** The state of a push. */
type PushState =
  | { readonly kind: 'none' | 'cancelled' }
  | { readonly kind: 'running'; readonly words: string; readonly share: number }
  | { readonly kind: 'failed'; readonly problem: PageProblem }
  | { readonly kind: 'done'; readonly result: PushResult };

/** The repository and the ways that the visitor typed and chose. */
interface Wishes {
  readonly repository?: string;
  readonly visibility?: 'public' | 'private';
  readonly how?: string;
}

/** The part of the work in a line. */
const stepText = (step: 'hashing' | 'uploading', path: string, done: number, total: number) =>
  step === 'hashing' ? `Reading ${path}…` : `${formatBytes(done)} of ${formatBytes(total)} · ${path}`;

/** Pushes the saved result on the page. */
export class PushPanel {
  readonly #session: ModelSession;
  readonly #current: () => State;
  readonly #redraw: () => void;
  readonly #worker = callWorker<PushCalls>(
    () => new Worker(new URL('./push-worker.ts', import.meta.url), { type: 'module' }),
    { work: 'pushes to the hub', errorOf: packageError },
  );
  /** The save whose result the members below belong to. */
  #run: SavedRun | undefined;
  #isOpen = false;
  #typed: Wishes = {};
  #push: PushState = { kind: 'none' };
  /** The user of the token; empty if that is not known. */
  #user = '';
  /** A sentence about the account. */
  #account = '';
  /** True while the ways to sign in are shown. */
  #asksAccount = false;
  #signingIn = new AbortController();

  constructor(session: ModelSession, current: () => State, redraw: () => void) {
    this.#session = session;
    this.#current = current;
    this.#redraw = redraw;
  }

  #change(push: PushState): void {
    this.#push = push;
    this.#redraw();
  }

  // ------------------------------------------------------------------------------------------------------------------ the account

  /** Asks the hub whose the token of this tab is. */
  async #askUser(): Promise<void> {
    const [token, { endpoint }] = [storedToken(), hubApp()];
    this.#user = '';
    this.#asksAccount = token === '';
    this.#account =
      token === '' ? 'A push needs an account of the hub.' : `Asking ${new URL(endpoint).host} for your name…`;
    this.#redraw();
    if (token === '') return;
    try {
      this.#user = await this.#worker.call('user', { token, endpoint });
      this.#account = `Pushes as ${this.#user}.`;
    } catch (error) {
      if (isEnded(error)) return;
      this.#account = explainPush(error).text;
      this.#asksAccount = true;
    }
    this.#redraw();
  }

  #useToken(token: string): void {
    storeToken(token.trim());
    void this.#askUser();
  }

  async #signIn(): Promise<void> {
    this.#signingIn.abort();
    this.#signingIn = new AbortController();
    const { signal } = this.#signingIn;
    const { client } = hubApp();
    try {
      if (client === '') throw new Error('this site has no app on the hub to sign in with: give a token');
      if (self !== top) throw new Error('signing in takes a tab of its own: open this page in one, or give a token');
      this.#account = 'Sign in in the other window.';
      this.#redraw();
      this.#useToken(await signInToPush(signal));
    } catch (error) {
      if (signal.aborted) return;
      this.#account = `You are not signed in: ${messageOf(error)}.`;
      this.#redraw();
    }
  }

  // --------------------------------------------------------------------------------------------------------------------- the push

  /** The repository, and whether others may see it if it is new. */
  #wanted({ model, choice }: OpenState, { name }: SavedRun) {
    const format = infoOf(formatFor(model, choice.to));
    const repository = format.isFolder
      ? name
      : usualRepository(model, format.extensions[0] ?? '', choice.size ?? choice.to);
    const [main] = model.files;
    const isOpen = isOnHub(main) && !main.listing.isPrivate && !main.listing.isGated;
    const { repository: typed, visibility = isOpen ? 'public' : 'private', how = 'commit' } = this.#typed;
    return {
      repository: typed ?? (this.#user === '' ? '' : `${this.#user}/${repository}`),
      usual: repository,
      visibility,
      how,
    };
  }

  async #start(overwrite: boolean): Promise<void> {
    const state = this.#current() as OpenState;
    const { model, choice } = state;
    const run = this.#run;
    if (run === undefined || this.#push.kind === 'running') return;
    const { repository, visibility, how } = this.#wanted(state, run);
    const { shown } = this.#session;
    const begin = { words: 'Asking the hub…', share: 0 };
    shown.beginPush(() => this.#cancel());
    this.#change({ kind: 'running', ...begin });
    announce(`Pushing to ${repository}`, 0);
    try {
      const { result } = run;
      const settings = settingsFile(result);
      const [main] = model.files as [(typeof model.files)[number]];
      const name = isOnHub(main)
        ? hubNameText({ id: main.listing.id, revision: main.listing.commit, path: main.path })
        : model.name;
      const format = formatFor(model, choice.to);
      const isFolder = makesFolder(model, format);
      const files = [
        ...(await run.saved.files()),
        ...(result.config === undefined ? [] : [{ path: 'config.json', content: jsonBlob(result.config) }]),
        ...(settings === undefined ? [] : [{ path: settings.name, content: jsonBlob(settings.content) }]),
      ];
      const { bytesAfter: bytes, bitsPerWeight } = result.report.totals;
      const pushed = await this.#worker.call(
        'push',
        {
          ...{ endpoint: hubApp().endpoint, token: storedToken(), repository, visibility, overwrite },
          ...{ pullRequest: how === 'pull request', files, isFolder, model: main },
          along: model.files.flatMap((file) =>
            !isOnHub(file) && namesAlong.includes(file.name) ? [{ path: file.name, content: file }] : [],
          ),
          card: {
            type: choice.size ?? choice.to,
            bytes,
            bitsPerWeight,
            command: commandOf(name, format, choice),
            readers: readersOf(state, weightsIn(model, choice, files[0]?.path ?? run.name, '')),
          },
        },
        ({ step, path, bytesDone, bytesTotal }) => {
          if (this.#push.kind !== 'running') return;
          const share = step === 'hashing' ? this.#push.share : bytesDone / Math.max(1, bytesTotal);
          this.#change({ kind: 'running', words: stepText(step, path, bytesDone, bytesTotal), share });
        },
      );
      announce(`Pushed to ${repository}`, 0);
      this.#push = { kind: 'done', result: pushed };
    } catch (error) {
      if (isEnded(error)) {
        announce('Cancelled', 0);
        this.#push = { kind: 'cancelled' };
      } else {
        const problem = explainPush(error, () => void this.#start(true));
        announce(problem.title, 0);
        this.#push = { kind: 'failed', problem };
      }
    }
    shown.endPush();
  }

  #cancel(): void {
    // Ends all requests with it.
    this.#worker.end();
  }

  // --------------------------------------------------------------------------------------------------------------------- the view

  /** The button that opens the panel, among those that save. */
  button({ run }: OpenState): TemplateResult {
    const open = () => {
      this.#isOpen = !this.#isOpen;
      if (this.#isOpen) void this.#askUser();
      else this.#redraw();
    };
    return html`<button type="button" id="push-open" aria-expanded=${this.#isOpen} aria-controls="push"
      ?disabled=${run.kind !== 'saved' || this.#push.kind === 'running'} @click=${open}>Push to the hub…</button>`;
  }

  /** One sentence about the push. */
  #status(): TemplateResult | string {
    const push = this.#push;
    if (push.kind === 'running') return push.words;
    if (push.kind === 'cancelled') return 'Cancelled. Another push goes on with what was uploaded.';
    if (push.kind !== 'done') return '';
    const { url, isPrivate, pullRequest, pushed, keptReadme } = push.result;
    const link = (address: string) =>
      html`<a href=${address} target="_blank" rel="noopener">${address.replace(/^https:\/\//, '')}</a>`;
    const place = html`${link(url)} (${isPrivate ? 'private' : 'public'})`;
    const kept = keptReadme ? ' README.md there is of somebody else, and stayed.' : '';
    if (pushed.length === 0) return html`Nothing to push: ${place} has these files.${kept}`;
    return html`Pushed ${formatMany(pushed.length, 'file')} to ${pullRequest === undefined ? place : link(pullRequest)}.${kept}`;
  }

  /** The panel, below the buttons. */
  view(state: OpenState): TemplateResult | typeof nothing {
    const run = state.run.kind === 'saved' ? state.run : undefined;
    if (run !== this.#run) {
      this.#run = run;
      this.#isOpen = false;
      this.#typed = {};
      this.#push = { kind: 'none' };
      this.#signingIn.abort();
    }
    if (run === undefined || !this.#isOpen) return nothing;
    const { host } = new URL(hubApp().endpoint);
    const { repository, usual, visibility, how } = this.#wanted(state, run);
    const push = this.#push;
    const works = push.kind === 'running';
    const type = (change: Wishes) => {
      this.#typed = { ...this.#typed, ...change };
      this.#redraw();
    };
    const textOf = ({ target }: Event) => (target as HTMLInputElement | HTMLSelectElement).value;
    const option = (value: string, label: string, chosen: string) =>
      html`<option value=${value} .selected=${live(value === chosen)}>${label}</option>`;
    const isAlone = run.name.endsWith('.gguf');
    const along = isAlone ? '' : ', the settings and the tokenizer of the model,';
    const problem = push.kind === 'failed' ? push.problem : undefined;
    const start = (event: Event) => {
      event.preventDefault();
      void this.#start(false);
    };
    return html`
      <form class="push" id="push" aria-labelledby="push-title" @submit=${start}>
        <h3 id="push-title">Push to the hub</h3>
        <p class="hint" id="push-sends">Push sends ${run.name} (${formatBytes(run.result.report.totals.bytesAfter)})${along} and a card (README.md), which says how it was made, to ${host} and its store of
          large files. Your token goes to ${host} alone. Before that, it is asked for the name of your account, no more.</p>
        <div class="push-fields">
          <label class="field" for="push-name">Repository<input type="text" id="push-name" required placeholder="you/${usual}" autocomplete="off" autocapitalize="off" spellcheck="false"
            .value=${live(repository)} ?disabled=${works} @input=${(event: Event) => type({ repository: textOf(event) })}></label>
          <label class="field" for="push-visibility">If it is new, it is<select id="push-visibility" ?disabled=${works}
            @change=${(event: Event) => type({ visibility: textOf(event) as 'public' | 'private' })}>${option('private', 'private', visibility)}${option('public', 'public', visibility)}</select></label>
          <label class="field" for="push-how">The files become<select id="push-how" ?disabled=${works}
            @change=${(event: Event) => type({ how: textOf(event) })}>${option('commit', 'a commit', how)}${option('pull request', 'a pull request', how)}</select></label>
        </div>
        <div class="row push-account">
          <p id="push-account" role="status">${this.#account}</p>
          <button type="button" class="small" id="push-other" data-next="#push-sign-in" ?hidden=${this.#asksAccount} ?disabled=${works}
            @click=${() => {
              this.#asksAccount = true;
              this.#redraw();
            }}>Another account</button>
        </div>
        <div class="push-sign" ?hidden=${!this.#asksAccount}>
          <button type="button" id="push-sign-in" ?disabled=${works} @click=${() => void this.#signIn()}>Sign in at ${host}</button>
          <label class="field" for="push-token">Or a token that may write<input type="password" id="push-token" autocomplete="off" ?disabled=${works}
            @change=${(event: Event) => this.#useToken(textOf(event))}></label>
          <p class="hint">Signing in lets this page fill repositories that it makes. For others, give a token. Either is kept until this tab is closed.</p>
        </div>
        <div class="row">
          <button type="submit" class="primary" id="push-run" data-next="#push-cancel" ?hidden=${works}>${push.kind === 'failed' || push.kind === 'cancelled' ? 'Push again' : 'Push'}</button>
          <button type="button" id="push-cancel" data-next="#push-run" ?hidden=${!works} @click=${() => this.#cancel()}>Cancel</button>
        </div>
        <progress id="push-progress" max="1" value=${push.kind === 'running' ? push.share : 0} aria-label="Progress of the push" ?hidden=${!works}></progress>
        <p class="push-status" id="push-status" role="status">${this.#status()}</p>
        ${
          problem === undefined
            ? nothing
            : html`<div class="problem" id="push-problem" role="alert"><p><strong>${problem.title}</strong></p><p>${problem.text}</p>${
                problem.action &&
                html`<div class="row"><button type="button" id="push-action" data-next="#push-cancel" @click=${problem.action.run}>${problem.action.label}</button></div>`
              }</div>`
        }
      </form>`;
  }
}
