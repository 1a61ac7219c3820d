/**
 * Plans results for mlx-lm: which modules get codes, and config.json.
 * Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/convert.py and mlx_lm/utils.py (quantize_model, save_model, save_config).
 */

import { noteOf } from '../../../../core/note.js';
import type { CastType } from '../../../codecs/cast.js';
import type { Form } from '../../../codecs/codec.js';
import { tileElements } from '../../../codecs/codec.js';
import { elementsOf } from '../../../codecs/elements.js';
import type { MicroscaledForm, MicroscaledKind, microscaledBlock } from '../../../codecs/microscaled.js';
import type { MlxForm, MlxWidth } from '../../../codecs/mlx.js';
import { quotedNames } from '../../../files/bytes.js';
import type { PlannedTensor } from '../../../format.js';
import { ruleFor } from '../../../options.js';
import { isKeptFor, type Reason, rankReason, reasons } from '../../../reason.js';
import type { keeperByName } from '../../keep.js';
import type { mlxCodesOf } from '../../targets.js';
import type { LayoutPlan, LayoutStart, PlanLayout, WeightToStore } from '../layout.js';
import { mlxFloatsOf } from './floats.js';
import { mlxModel } from './models.js';

/** Size of groups by default. */
const usualGroup = 64;

/** Largest size of a file: 5 GiB. */
const shardBytes = 5 * 2 ** 30;

/** Reason why a module of MLX has no codes for a tensor. */
function obstacleTo({ source: { name, shape } }: WeightToStore): Reason | undefined {
  if (!name.endsWith('.weight')) return reasons.notWeight;
  const isStack = shape.length === 3 && /\.switch_mlp\.\w+\.weight$/.test(name);
  return shape.length === 2 || isStack ? undefined : rankReason(shape.length);
}

const moduleOf = (name: string) => name.slice(0, -'.weight'.length);

/** Functions that are passed in, because bundlers would make further files if this module, which is loaded on demand, imported them. */
export interface MlxTools {
  readonly codesOf: typeof mlxCodesOf;
  readonly blockOf: typeof microscaledBlock;
  readonly keeperOf: typeof keeperByName;
}

/** Plans results. Plans throw ScalepointError `UNKNOWN_FORMAT` or `BAD_FILE` if mlx-lm does not load the model. */
export function mlxPlanner(tools: MlxTools): PlanLayout {
  return (start) => planMlx(start, tools);
}

function planMlx(
  { tensors: source, choices, beside }: LayoutStart,
  { codesOf, keeperOf, blockOf }: MlxTools,
): LayoutPlan {
  const config = beside.get('config.json');
  const { tensors, unused, also, isPrecise } = mlxModel(source, config);
  const floats = config && mlxFloatsOf(config);
  const search = choices.search === 'best' ? choices.search : undefined;
  const range = search !== undefined || choices.range === 'mse' ? 'mse' : undefined;
  const keeper = keeperOf(tensors);
  const forms = new Map<string, MlxForm | MicroscaledForm>();
  const newForm = (
    codes: MlxWidth | MicroscaledKind,
    groupSize: number,
    floats: CastType,
  ): MlxForm | MicroscaledForm =>
    typeof codes === 'number'
      ? { codec: 'mlx', bits: codes, groupSize, scale: floats, ...(range && { range }), ...(search && { search }) }
      : { codec: 'mlx-floats', kind: codes, tool: 'mlx', floats, ...(range && { search: true }) };
  const form = (codes: MlxWidth | MicroscaledKind, groupSize: number, floats: CastType) => {
    const key = `${codes} ${groupSize} ${floats}`;
    const known = forms.get(key) ?? newForm(codes, groupSize, floats);
    forms.set(key, known);
    return known;
  };
  const formFor = (to: string) => codesOf(to)?.form ?? 4;
  const usual = form(formFor(choices.to), groupOf(choices.granularity), 'F32');

  /** The settings of a module. */
  function settingsOf(its: MlxForm | MicroscaledForm) {
    if (its.codec === 'mlx') return { group_size: its.groupSize, bits: its.bits, mode: 'affine' };
    return { group_size: blockOf(its.kind), bits: its.kind === 'mxfp8' ? 8 : 4, mode: its.kind };
  }

  /** The entry `quantization`, with the modules that differ. */
  function quantizationOf(planned: readonly PlannedTensor[]): Record<string, unknown> {
    const shared = settingsOf(usual);
    const others = planned.flatMap(({ source: { name }, form: its }): [string, unknown][] => {
      if (its.codec !== 'mlx' && its.codec !== 'mlx-floats') return [];
      const own = settingsOf(its as MlxForm | MicroscaledForm);
      const isUsual = own.group_size === shared.group_size && own.bits === shared.bits && own.mode === shared.mode;
      return isUsual ? [] : [[moduleOf(name), own]];
    });
    return { ...shared, ...Object.fromEntries(others) };
  }

  return {
    tensors,
    floats,
    keptByName(name) {
      const reason = keeper(name);
      return isKeptFor('norm', reason) || isKeptFor('bias', reason) ? reason : undefined;
    },
    obstacle(weight) {
      const codes = formFor(weight.to);
      const by = typeof codes === 'number' ? 1 : blockOf(codes);
      const dimension = weight.source.shape.at(-1) as number;
      return obstacleTo(weight) ?? (dimension % by === 0 ? undefined : { kind: 'notDivisible', dimension, by });
    },
    groupSizes: (to) => (typeof formFor(to) === 'number' ? [usualGroup] : []),
    groupsStacked: true,
    formOf({ source: { name, shape }, to, dtype }, groupSize = usualGroup) {
      const scale = floats ?? (dtype === 'F64' ? 'F32' : (dtype as CastType));
      const isRuled = choices.rules !== undefined && ruleFor(choices.rules, name) !== undefined;
      if (!isRuled && isPrecise(moduleOf(name)) && (shape.at(-1) as number) % 64 === 0) return form(8, 64, scale);
      return form(formFor(to), groupSize, scale);
    },
    weighing: {
      takes: (shape) => shape.length === 2 && (shape[1] as number) <= tileElements,
      add: (its: Form, importance) => ({
        ...its,
        ...(its.codec === 'mlx' ? { range: 'mse' } : { search: true }),
        importance,
      }),
    },
    sidecars(planned) {
      const value = quantizationOf(planned);
      return [{ option: 'config', value, also: { ...also, quantization: value }, base: config }];
    },
    notes() {
      if (unused.length === 0) return [];
      const text = `left out, because mlx-lm does not read it: ${quotedNames(unused)}`;
      return [noteOf('notReadByMlx', { tensors: unused }, text)];
    },
    metadata: () => ({ format: 'mlx' }),
    indexMetadata: (planned) => ({
      total_parameters: planned.reduce((sum, { source: { shape } }) => sum + elementsOf(shape), 0),
    }),
    shardBytes,
  };
}

/** Elements of a group by the options. */
function groupOf(granularity: LayoutStart['choices']['granularity']): number {
  return granularity?.kind === 'per-group' ? granularity.groupSize : usualGroup;
}
