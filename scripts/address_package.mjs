// Puts the address of the published site, SCALEPOINT_SITE, into the package before it is packed: as `homepage`, and into the links of the
// README to pages of the guide. Without the address, links stay relative; the guide travels in the package.
//
//   SCALEPOINT_SITE=https://example.org/scalepoint/ node scripts/address_package.mjs [folder with package.json and README.md]

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { siteAddress } from '../web/demo/shared/shell.mjs';
import { root } from './steps.mjs';

const folder = process.argv[2] ?? root;
const site = siteAddress();
if (site !== undefined) {
  const manifest = join(folder, 'package.json');
  const fields = JSON.parse(readFileSync(manifest, 'utf8'));
  writeFileSync(manifest, `${JSON.stringify({ ...fields, homepage: site }, undefined, 2)}\n`);

  // A page `05-models.md` has the address `guide/models/`, the first one `guide/`.
  const readme = join(folder, 'README.md');
  const links = /\]\(web\/demo\/guide\/\d\d-([a-z-]+)\.md(#[^)]*)?\)/g;
  const addressed = readFileSync(readme, 'utf8').replace(links, (_, page, heading = '') => {
    return `](${site}guide/${page === 'index' ? '' : `${page}/`}${heading})`;
  });
  writeFileSync(readme, addressed);
}
