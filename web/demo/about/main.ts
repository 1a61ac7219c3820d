import { startSite } from '../shared/site.js';

startSite();
