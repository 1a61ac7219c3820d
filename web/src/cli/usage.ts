/** What --help prints: at most 80 columns. */

export const usage = `scalepoint: make models smaller

  scalepoint inspect  FILE                      what is in a model file
  scalepoint plan     FILE --to int8            what would become of it
  scalepoint quantize FILE --to int8 [-o OUT]   the same with smaller weights
  scalepoint compare  A B                       how far B is from A
  scalepoint bench                              how fast it is on this machine

FILE is a .safetensors, .gguf or .npy file, or the .safetensors.index.json of a
sharded model; its content decides, not its name.
scalepoint COMMAND --help tells more; scalepoint --version names the build.
`;

export const inspectUsage = `scalepoint inspect FILE [--json]

Lists the tensors of a model: name, dtype, shape, size; then its metadata, long
values cut short. Of a GGUF file also architecture, parameters and bits per
weight. Reads headers only.

  --json       print JSON: { file, format, bytes, files, tensors, metadata,
               totals, peakBytes }
  --verbose    tell time and memory; with an error, where it arose
  --no-color   no colour, like NO_COLOR=1 in the environment

Examples
  scalepoint inspect model.safetensors
  scalepoint inspect model.safetensors.index.json
  scalepoint inspect model.gguf --json | jq '.tensors[].name'
`;

/** Targets and options that decide about a result. */
const targets = `  --to TYPE             what weights become
      safetensors, .npy   int8, int4, float8e4m3fn, float16, bfloat16
      GGUF                Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L
                          Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL F16 BF16 F32
  --rule 'REGEX=TYPE'   tensors whose name matches become TYPE, embeddings too
  --rule 'REGEX=keep'   tensors whose name matches are kept; rules can be
                        repeated, the first one that matches decides
`;

const integerOptions = `safetensors, integers
  --scheme S            symmetric (the default), or asymmetric: zero points
  --granularity G       per-channel (the default of int8), or per-group
  --group-size N        elements that share a scale, a multiple of 8; means
                        per-group (int4: 128 by default)
  --range R             what the codes cover: min-max (the default), mse (least
                        squared error), entropy, or percentile:99.9
  --packed              int8 codes in int32 words, as int4 and groups always are
  --activations int8-dynamic
                        a configuration that quantizes activations, too (W8A8)
`;

const ggufOptions = `GGUF
  --pure                every weight in TYPE, without llama-quantize's mixture
  --requantize          also quantize what is quantized already
  --fix-alignment       correct general.alignment where FILE states one that the
                        result does not have; llama-quantize leaves it wrong
`;

export const quantizeUsage = `scalepoint quantize FILE --to TYPE [-o OUT] [options]

Makes a model smaller. A table tells what became of every tensor: sizes, SQNR,
the largest error, or why it was kept. safetensors get the layout of
compressed-tensors, with codes for weights of two or more dimensions;
embeddings, norms, biases, 1-D tensors and lm_head are kept. GGUF files become
what llama-quantize makes of them, byte for byte. A .npy file becomes
safetensors.

${targets}  -o, --output OUT      where the result goes; without it beside FILE, with TYPE
                        in its name: model.int8.safetensors, model.Q4_K_M.gguf
  --min-sqnr DB         fail, and write nothing, if a tensor's SQNR is lower
  --workers N           threads that share the work, 0 for none; by default one
                        less than there are processors
  --dry-run             only tell what would be done, like scalepoint plan
  --force               replace OUT, and its configuration, if they are there
  --json                print JSON: { file, output, config, to, tensors, totals,
                        notes, peakBytes }
  --quiet               print errors only
  --verbose             tell time and memory; with an error, where it arose
  --no-color            no colour, like NO_COLOR=1 in the environment

${integerOptions}  --config FILE         the model's config.json, to be written with the
                        quantization_config in it

${ggufOptions}
Loaders of codes need a quantization_config. It is written beside OUT:
config.json beside model.safetensors, X.config.json beside X.safetensors.
OUT appears whole or not at all.
Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

Examples
  scalepoint quantize model.safetensors --to int8 --config config.json
  scalepoint quantize model.safetensors --to int4 --group-size 32 -o small
  scalepoint quantize model.safetensors --to int8 --rule '^decoder=keep'
  scalepoint quantize model.gguf --to Q4_K_M --rule 'ffn_down=Q6_K'
  scalepoint quantize weights.npy --to int8 --min-sqnr 35 --json
`;

export const planUsage = `scalepoint plan FILE --to TYPE [options]

Tells what scalepoint quantize would do with the same options: what becomes of
every tensor, why it is kept, and the exact size of the result. Reads headers
only.

${targets}  --json                print JSON: { file, output, format, to, tensors, totals,
                        notes, quantizationConfig, peakBytes }
  --quiet               print errors only
  --verbose             tell time and memory; with an error, where it arose
  --no-color            no colour, like NO_COLOR=1 in the environment

${integerOptions}
${ggufOptions}
Examples
  scalepoint plan model.safetensors --to int4 --group-size 64
  scalepoint plan model.gguf --to Q4_K_M
  scalepoint plan model.gguf --to Q4_K_M --json | jq .totals.bytesAfter
`;

export const compareUsage = `scalepoint compare A B [options]

Holds the tensors of model B against those of model A, by name: SQNR, cosine,
the largest error, for each of them and in all. Codes with scales and blocks
count as what they stand for, so a model can be compared with what it was made
from.

  --sort sqnr     the worst first; without it in the order of A
  --min-sqnr DB   fail if a tensor's SQNR is lower
  --workers N     threads that share the work, 0 for none; by default one less
                  than there are processors
  --json          print JSON: { a, b, tensors, total, skipped, onlyInA, onlyInB,
                  peakBytes }
  --quiet         print errors only
  --verbose       tell time and memory; with an error, where it arose
  --no-color      no colour, like NO_COLOR=1 in the environment

Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

Examples
  scalepoint compare model.safetensors model.int8.safetensors
  scalepoint compare model.gguf model.Q4_K_M.gguf --sort sqnr
  scalepoint compare old.gguf new.gguf --min-sqnr 30 --quiet
`;

export const benchUsage = `scalepoint bench [options]

Measures the library on this machine: arrays, ggml's blocks, layers, on one
thread, against the memory limit and plain JavaScript. Contestants run in turns
and medians are compared, so the ratios hold on a machine that is not idle, too.
It takes a minute, --quick some seconds.

  --quick        less data, fewer samples
  --only PART    arrays, blocks or layers alone
  --size N       floats of arrays and blocks, a multiple of 256 (2^24; 2^20)
  --width N      inputs and outputs of the layers (4096; 1024)
  --json         print JSON: { version, tier, rows, engine, processor }
  --verbose      tell time and memory; with an error, where it arose
  --no-color     no colour, like NO_COLOR=1 in the environment

Examples
  scalepoint bench --quick
  scalepoint bench --only layers --json | jq '.rows[].milliseconds'
`;
