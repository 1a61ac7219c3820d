/**
 * The worker: reads and converts tiles, passes tokens through layers, and searches vectors. Runs as a worker of the browser and of Node. Its
 * file holds all of its code, so that it can be served from anywhere.
 */
import { TileHandler } from './convert/tile-handler.js';
import { LayerHandler } from './evaluate/layer-handler.js';
import { Share } from './search/share.js';
import { serve } from './workers/serve.js';

serve({
  tiles: (core, send) => new TileHandler(core, send),
  layers: (core) => new LayerHandler(core),
  vectors: (core) => new Share(core),
});
