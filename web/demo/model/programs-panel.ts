// Panel *Where shall it run?*: a program and its memory, and types to recommend for them.
import { planModel } from 'scalepoint/model';
import { nextTask } from '../../src/tooling.js';
import { listView } from '../shared/controls.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes } from '../shared/format.js';
import { inputOf } from '../shared/page-files.js';
import { sentence } from '../shared/problems.js';
import { recall, remember } from '../shared/remember.js';
import { html, live, nothing, type TemplateResult } from '../shared/template.js';
import { type ModelChoice, withTarget } from './choice.js';
import { inPageWords } from './explain.js';
import { lossView } from './offers-panel.js';
import {
  mayBeLanguage,
  type PlannedTarget,
  type ProgramTarget,
  programsOf,
  type Recommendation,
  recommend,
  usualAmong,
} from './programs.js';
import type { ModelSession } from './session.js';
import { isSaving, type OpenState } from './state.js';

/** Choices of memory in GB. */
const memories = [2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128] as const;

/** The plans for a program's targets. */
interface Planned {
  readonly program: string;
  readonly found: readonly PlannedTarget[];
  readonly isWhole: boolean;
  /** The reason if no target can be planned. */
  readonly problem: string;
}

/** The questions, and the recommendations that follow from them. */
export class ProgramsPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  #program = recall('program');
  #memory = recall('memory');
  readonly #planned = new WeakMap<ModelFile, Planned>();

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
  }

  /** Plans the usual targets of a program, one after the other. */
  async #plan(
    program: string,
    targets: readonly ProgramTarget[],
    { model, choice }: OpenState,
    chooses: boolean,
  ): Promise<void> {
    let problem = '';
    const found: PlannedTarget[] = [];
    const show = (isWhole: boolean) => {
      this.#planned.set(model, { program, found: [...found], isWhole, problem: found.length === 0 ? problem : '' });
      this.#redraw();
    };
    this.#planned.set(model, { program, found, isWhole: false, problem });
    for (const target of targets) {
      try {
        const options = await this.#session.options(model, this.#choiceOf(choice, target));
        const { totals } = await planModel(inputOf(model.files), options);
        const { bytesAfter, bytesBefore, quantized, cast } = totals;
        found.push({ ...target, bytesAfter, bytesBefore, converted: quantized + cast });
      } catch (error) {
        problem = inPageWords(error);
      }
      await nextTask();
      if (this.#planned.get(model)?.program !== program) return;
    }
    show(true);
    if (!chooses || targets.some(({ name }) => name === choice.to)) return;
    // A type that the program does not read is no choice any more.
    const all = recommend(found, this.#bytes);
    const first = all.find(({ title }) => title === 'Balanced') ?? all[0];
    if (first !== undefined) this.#session.choose(this.#choiceOf(choice, first));
  }

  #choiceOf(choice: ModelChoice, { format, name }: ProgramTarget): ModelChoice {
    return withTarget(format, choice, name as ModelChoice['to']);
  }

  get #bytes(): number | undefined {
    const bytes = Number(this.#memory) * 1e9;
    return bytes > 0 ? bytes : undefined;
  }

  /** @param offers the cards of the presets, which are shown as long as no program is chosen */
  view(state: OpenState, offers: () => TemplateResult): TemplateResult {
    const { model, plan, outputs, run } = state;
    const programs = programsOf(model, plan?.architecture ?? outputs?.architecture, mayBeLanguage(state));
    const isKnown = programs.has(this.#program);
    const targets = usualAmong(programs.get(this.#program) ?? []);
    const planned = this.#planned.get(model);
    if (isKnown && planned?.program !== this.#program) void this.#plan(this.#program, targets, state, false);
    const choose = (program: string) => {
      this.#program = program;
      remember('program', program);
      const all = programs.get(program);
      if (all !== undefined) void this.#plan(program, usualAmong(all), state, true);
      this.#redraw();
    };
    return html`
      <div class="where" id="where">
        <fieldset class="where-questions" ?disabled=${isSaving(run)}>
          <legend class="hidden">Device</legend>
          <div>${listView({
            id: 'where-program',
            label: 'Where shall it run?',
            options: { '': 'Anywhere', ...Object.fromEntries([...programs.keys()].map((name) => [name, name])) },
            chosen: isKnown ? this.#program : '',
            choose,
          })}</div>
          <div ?hidden=${!isKnown}>${listView({
            id: 'where-memory',
            label: 'Memory there',
            options: {
              '': 'Not known',
              ...Object.fromEntries(memories.map((count) => [String(count), `${count} GB`])),
            },
            chosen: this.#memory,
            choose: (memory) => {
              this.#memory = memory;
              remember('memory', memory);
              this.#redraw();
            },
          })}</div>
        </fieldset>
        ${isKnown ? this.#recommendationsView(state) : offers()}
      </div>`;
  }

  #recommendationsView(state: OpenState): TemplateResult {
    const planned = this.#planned.get(state.model);
    const isReady = planned?.program === this.#program && planned.isWhole;
    const all = isReady ? recommend(planned.found, this.#bytes) : [];
    let words = '';
    if (!isReady) words = `Planning the types that ${this.#program} reads…`;
    else if (planned.problem !== '')
      words = `${this.#program} cannot run a result of this model. ${sentence(planned.problem)}`;
    else if (all.length === 0) words = `No weight of this model becomes smaller in a type that ${this.#program} reads.`;
    return html`
      <fieldset class="offers recommended" id="recommended" ?hidden=${words !== ''}><legend class="hidden">Recommended types</legend>
        ${all.map((one) => this.#cardView(one, state))}
      </fieldset>
      <p class="hint where-words" id="where-words" role="status" ?hidden=${words === ''}>${words}</p>`;
  }

  #cardView(one: Recommendation, state: OpenState): TemplateResult {
    const { choice, run, offers, errors, plan } = state;
    const isChosen = choice.size === undefined && choice.to === one.name;
    const offer = Object.values(offers).find(({ to }) => to === one.name);
    const own =
      isChosen && plan !== undefined && errors.size > 0
        ? { errors, exact: [...errors.values()].every(({ exact }) => exact) }
        : undefined;
    const known = offer?.errors === undefined ? own : offer;
    const share = Math.round((1 - one.bytesAfter / one.bytesBefore) * 100);
    return html`<label class="offer covered"
      ><input type="radio" name="recommended" value=${one.name} .checked=${live(isChosen)} ?disabled=${isSaving(run)}
        @change=${() => this.#session.choose(this.#choiceOf(choice, one))}
      ><span class="offer-card"><span class="offer-head"><span class="offer-title">${one.title}</span><span class="offer-target">${one.name}</span></span
        ><span class="offer-size">${formatBytes(one.bytesAfter)}</span><span class="offer-saved">${share > 0 ? `${share} % smaller` : 'not smaller'}</span
        ><span class="offer-note">${one.reason}</span>${known === undefined ? nothing : lossView({ to: choice.to, ...known }, state)}</span></label>`;
  }
}
