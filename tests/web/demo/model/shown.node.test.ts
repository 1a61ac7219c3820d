// The model on show, whatever a visitor does in whatever order: the page, its address and a save are about one model.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Address, Step } from '../../../../web/demo/model/address.js';
import { hashOf, initialChoice, type ModelChoice, withPreset } from '../../../../web/demo/model/choice.js';
import { type OpenedModel, Shown, type View } from '../../../../web/demo/model/shown.js';
import { initialState, isSaving, type State } from '../../../../web/demo/model/state.js';
import type { ModelFile } from '../../../../web/demo/shared/files.js';
import { type Preset, presets } from '../../../../web/src/tooling.js';

/** A history in memory. */
class Steps implements Address {
  #all: { step: Step | undefined; hash: string }[] = [{ step: undefined, hash: '' }];
  #at = 0;
  #listener: (step: Step | undefined) => void = () => {};

  get now() {
    return this.#all[this.#at]!;
  }
  get step() {
    return this.now.step;
  }
  get hash() {
    return this.now.hash && `#${this.now.hash}`;
  }
  push(step: Step | undefined, hash: string) {
    this.#all = [...this.#all.slice(0, this.#at + 1), { step, hash }];
    this.#at++;
  }
  replace(step: Step, hash: string) {
    this.#all[this.#at] = { step, hash };
  }
  listen(listener: (step: Step | undefined) => void) {
    this.#listener = listener;
  }
  go(by: number) {
    if (this.#all[this.#at + by] === undefined) return;
    this.#at += by;
    this.#listener(this.now.step);
  }
  back() {
    this.go(-1);
  }
  /** Edits the address by hand. */
  type(hash: string) {
    this.push(undefined, hash);
    this.#listener(undefined);
  }
}

const modelOf = (name: string): ModelFile => ({ name, format: 'safetensors', files: [], tensors: [] });
const models = ['a', 'b', 'c'].map(modelOf);

/** Stand-ins for figures name the model and the type that they are of. */
const tag = ({ name }: ModelFile, { to }: ModelChoice) => `${name} ${to}`;
const figuresOf = (text: string) => ({ tag: text }) as never;
const tagIn = (figures: unknown) => (figures as { tag?: string } | undefined)?.tag;

/** A page without panels. The sequence decides when reading, measuring and saving end. */
class Visit {
  state: State = initialState;
  readonly steps = new Steps();
  readonly shown: Shown<OpenedModel>;
  readonly views: View<OpenedModel>[] = [];
  readonly opened: OpenedModel[] = [];
  readonly reading: (() => void)[] = [];
  save:
    | { readonly model: ModelFile | undefined; readonly choice: ModelChoice | undefined; isCancelled: boolean }
    | undefined;

  constructor() {
    const store = {
      get: () => this.state,
      set: (change: Partial<State>) => {
        this.state = { ...this.state, ...change };
      },
      draw: () => {},
    };
    this.shown = new Shown<OpenedModel>(store, this.steps, (view) => this.views.push(view));
  }

  drop(which: number): void {
    const model = models[which % models.length]!;
    const open = () => {
      const opened: OpenedModel = {
        model,
        outputs: undefined,
        choice: initialChoice('safetensors'),
        sizer: { sizes: figuresOf(model.name), cancel: () => this.measured(opened), follow() {} },
      };
      this.opened.push(opened);
      this.shown.open(opened, 'open', () => this.drop(which));
    };
    if (this.shown.isFree('open', () => this.drop(which))) this.reading.push(open);
  }

  measured(opened: OpenedModel): void {
    this.shown.set(opened, { sizes: figuresOf(opened.model.name) });
  }

  run(): void {
    const { model, choice } = this.state;
    const save = { model, choice, isCancelled: false };
    const cancel = () => {
      save.isCancelled = true;
    };
    if (!this.shown.begin(cancel)) return;
    expect(this.save).toBeUndefined();
    this.save = save;
  }

  /** Ends the save: its bytes are those of the model that it began with. */
  end(fails: boolean): void {
    const { save } = this;
    if (save === undefined) return;
    this.save = undefined;
    const { model, choice } = save;
    const problem = { title: 'failed', text: '' };
    if (save.isCancelled) this.shown.end({ kind: 'cancelled' });
    else if (fails) this.shown.end({ kind: 'none' }, problem);
    else {
      const name = model === undefined || choice === undefined ? 'several' : tag(model, choice);
      this.shown.end({ kind: 'saved', name, seconds: 1, result: undefined as never, saved: undefined as never });
    }
  }

  /** Everything that is shown is about one model, and a save holds it. */
  check(): void {
    const { model, choice, several, plan, sizes, run, problem } = this.state;
    const { opened } = this.shown;
    expect([model, choice]).toEqual([opened?.model, opened?.choice]);
    expect(several === undefined || model === undefined).toBe(true);
    // A plan of the choice before stays until there is another one, but never that of another model.
    if (plan !== undefined) expect(tagIn(plan)?.split(' ')[0]).toBe(model?.name);
    if (model !== undefined) expect(tagIn(sizes)).toBe(model.name);
    expect(this.steps.now.step?.at).toBe(this.shown.key);
    // Without a model the address may be a link with settings for the next one.
    if (opened !== undefined) expect(this.steps.now.hash).toBe(hashOf('safetensors', opened.choice));
    expect(isSaving(run)).toBe(this.save !== undefined);
    if (this.save !== undefined) expect([model, choice]).toEqual([this.save.model, this.save.choice]);
    else if (problem !== undefined) expect(problem.title).not.toBe('A save is running');
    if (run.kind === 'saved') expect(run.name).toBe(model && choice ? tag(model, choice) : 'several');
  }
}

type Act = (visit: Visit) => void;
const named = (name: string, act: Act): Act => Object.assign(act, { toString: () => name });

const acts = fc.oneof(
  { weight: 4, arbitrary: fc.nat(2).map((i) => named(`drop ${i}`, (visit) => visit.drop(i))) },
  {
    weight: 4,
    arbitrary: fc
      .nat()
      .map((i) => named(`read ${i}`, ({ reading }) => reading.splice(i % (reading.length || 1), 1)[0]?.())),
  },
  {
    weight: 1,
    arbitrary: fc.constant(named('drop several', ({ shown }) => void shown.open(models, 'open', () => {}))),
  },
  { weight: 2, arbitrary: fc.constant(named('close', ({ shown }) => void shown.close())) },
  { weight: 3, arbitrary: fc.integer({ min: -3, max: 2 }).map((by) => named(`go ${by}`, ({ steps }) => steps.go(by))) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom('to=int4', 'to=nonsense', 'main')
      .map((hash) => named(`type ${hash}`, ({ steps }) => steps.type(hash))),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom(...presets).map((preset: Preset) =>
      named(`preset ${preset}`, ({ shown, state: { choice } }) => {
        if (choice !== undefined) shown.choose(withPreset('safetensors', choice, preset));
      }),
    ),
  },
  {
    weight: 5,
    arbitrary: fc.nat().map((i) =>
      named(`figures ${i}`, ({ views }) => {
        const view = views[i % (views.length || 1)];
        view?.set({ plan: figuresOf(tag(view.opened.model, view.choice)) });
      }),
    ),
  },
  {
    weight: 2,
    arbitrary: fc.nat().map((i) =>
      named(`sizes ${i}`, (visit) => {
        const opened = visit.opened[i % (visit.opened.length || 1)];
        if (opened !== undefined) visit.measured(opened);
      }),
    ),
  },
  { weight: 5, arbitrary: fc.constant(named('run', (visit) => visit.run())) },
  { weight: 2, arbitrary: fc.constant(named('finish', (visit) => visit.end(false))) },
  { weight: 1, arbitrary: fc.constant(named('fail', (visit) => visit.end(true))) },
  {
    weight: 1,
    arbitrary: fc.constant(named('press the button of the message', (visit) => visit.state.problem?.action?.run())),
  },
);

it('keeps page, address and save about one model over any sequence of acts', () => {
  let [held, saved] = [0, 0];
  fc.assert(
    fc.property(fc.array(acts, { minLength: 8, maxLength: 30 }), (sequence) => {
      const visit = new Visit();
      for (const act of sequence) {
        act(visit);
        visit.check();
        if (visit.state.problem?.title === 'A save is running') held++;
        if (visit.state.run.kind === 'saved') saved++;
      }
    }),
    { numRuns: 300 },
  );
  // The sequences reach what they are for.
  expect(Math.min(held, saved)).toBeGreaterThan(50);
});
