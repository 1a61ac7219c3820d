import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { startSite } from '../shared/site.js';

startSite();
startDroppingElsewhere();
