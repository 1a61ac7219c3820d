/**
 * The worker: reads and converts tiles, passes tokens through layers, and searches vectors. Runs as a worker of the browser and of Node. Its
 * file holds all of its code, so that it can be served from anywhere.
 */
import { TileHand } from './convert/tile-hand.js';
import { TransformerHand } from './evaluate/hand.js';
import { Share } from './search/share.js';
import { serve } from './workers/serve.js';

serve({
  tiles: (core, send) => new TileHand(core, send),
  layers: (core) => new TransformerHand(core),
  vectors: (core) => new Share(core),
});
