/**
 * Plans results for mlx-lm: which modules get codes, and config.json.
 * Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/convert.py and mlx_lm/utils.py (quantize_model, save_model, save_config).
 */
import type { CastType } from '../../../../codecs/cast.js';
import { tileElements } from '../../../../codecs/codec.js';
import { elementsOf } from '../../../../codecs/elements.js';
import type { MlxForm } from '../../../../codecs/mlx.js';
import { noteOf } from '../../../../core/note.js';
import { quotedNames } from '../../../../files/bytes.js';
import type { PlannedTensor } from '../../../format.js';
import { ruleFor } from '../../../options.js';
import { isKeptFor, type Reason, rankReason, reasons } from '../../../reason.js';
import type { keeperByName } from '../../keep.js';
import type { mlxCodesOf } from '../../targets.js';
import type { Fields, LayoutPlan, LayoutStart, PlanLayout, WeightToStore } from '../layout.js';
import { mlxModel } from './models.js';

/** Size of groups by default. */
const usualGroup = 64;

/** Largest size of a file: 5 GiB. */
const shardBytes = 5 * 2 ** 30;

const floatTypes: Readonly<Record<string, CastType>> = { float16: 'F16', bfloat16: 'BF16', float32: 'F32' };

/** The type of a model's floats by its config.json; undefined if it does not say. */
function floatsOf({ torch_dtype: torch, dtype, text_config: text }: Fields): CastType | undefined {
  const name = torch ?? dtype ?? (text as Fields | null | undefined)?.dtype;
  return typeof name === 'string' && Object.hasOwn(floatTypes, name) ? floatTypes[name] : undefined;
}

/** Reason why a module of MLX has no codes for a tensor. */
function obstacleTo({ source: { name, shape } }: WeightToStore): Reason | undefined {
  if (!name.endsWith('.weight')) return reasons.notWeight;
  const isStack = shape.length === 3 && /\.switch_mlp\.\w+\.weight$/.test(name);
  return shape.length === 2 || isStack ? undefined : rankReason(shape.length);
}

const moduleOf = (name: string) => name.slice(0, -'.weight'.length);

/** Functions that are loaded already. Bundlers would cut the code that imports them from here into more files. */
export interface MlxTools {
  readonly codesOf: typeof mlxCodesOf;
  readonly keeperOf: typeof keeperByName;
}

/** Plans results. Plans throw ScalepointError `UNKNOWN_FORMAT` or `BAD_FILE` if mlx-lm does not load the model. */
export function mlxPlanner(tools: MlxTools): PlanLayout {
  return (start) => planMlx(start, tools);
}

function planMlx({ tensors: source, choices, beside }: LayoutStart, { codesOf, keeperOf }: MlxTools): LayoutPlan {
  const config = beside.get('config.json');
  const { tensors, unused, also, isPrecise } = mlxModel(source, config);
  const floats = floatsOf(config ?? {});
  const range = choices.range === 'mse' ? choices.range : undefined;
  const keeper = keeperOf(tensors);
  const forms = new Map<string, MlxForm>();
  const form = (bits: MlxForm['bits'], groupSize: number, scale: CastType): MlxForm => {
    const key = `${bits} ${groupSize} ${scale}`;
    const known = forms.get(key) ?? { codec: 'mlx', bits, groupSize, scale, ...(range && { range }) };
    forms.set(key, known);
    return known;
  };
  const usual = form(codesOf(choices.to)?.bits ?? 4, groupOf(choices.granularity), 'F32');

  /** The entry `quantization`, with the modules that differ. */
  function quantizationOf(planned: readonly PlannedTensor[]): Record<string, unknown> {
    const entry = ({ bits, groupSize }: MlxForm) => ({ group_size: groupSize, bits, mode: 'affine' });
    const others = planned.flatMap(({ source: { name }, form: its }): [string, unknown][] => {
      const { codec, bits, groupSize } = its as MlxForm;
      if (codec !== 'mlx' || (bits === usual.bits && groupSize === usual.groupSize)) return [];
      return [[moduleOf(name), entry(its as MlxForm)]];
    });
    return { ...entry(usual), ...Object.fromEntries(others) };
  }

  return {
    tensors,
    floats,
    keptByName(name) {
      const reason = keeper(name);
      return isKeptFor('norm', reason) || isKeptFor('bias', reason) ? reason : undefined;
    },
    obstacle: obstacleTo,
    groupSizes: () => [usualGroup],
    groupsStacked: true,
    formOf({ source: { name, shape }, to, dtype }, groupSize = usualGroup) {
      const scale = floats ?? (dtype === 'F64' ? 'F32' : (dtype as CastType));
      const isRuled = choices.rules !== undefined && ruleFor(choices.rules, name) !== undefined;
      if (!isRuled && isPrecise(moduleOf(name)) && (shape.at(-1) as number) % 64 === 0) return form(8, 64, scale);
      return form(codesOf(to)?.bits ?? usual.bits, groupSize, scale);
    },
    weighing: {
      takes: (shape) => shape.length === 2 && (shape[1] as number) <= tileElements,
      add: (its, importance): MlxForm => ({ ...(its as MlxForm), range: 'mse', importance }),
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
