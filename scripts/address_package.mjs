// Puts addresses into the package before it is packed, because forks have others. The published site, SCALEPOINT_SITE, becomes `homepage` and
// the start of the README's links to pages of the guide; without it, links stay relative, and the guide travels in the package. The
// repository, GITHUB_REPOSITORY on GitHub, becomes `repository` and `bugs`: npm accepts a statement of provenance only from there, and finds
// the files that the README links to.
//
//   SCALEPOINT_SITE=https://example.org/scalepoint/ node scripts/address_package.mjs [folder with package.json and README.md]

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { siteAddress } from '../web/demo/shared/shell.mjs';
import { root } from './steps.mjs';

const folder = process.argv[2] ?? root;
const site = siteAddress();
const { GITHUB_REPOSITORY: repository, GITHUB_SERVER_URL: server = 'https://github.com' } = process.env;
const addresses = {
  ...(repository && {
    repository: { type: 'git', url: `git+${server}/${repository}.git` },
    bugs: { url: `${server}/${repository}/issues` },
  }),
  ...(site !== undefined && { homepage: site }),
};
if (Object.keys(addresses).length > 0) {
  const manifest = join(folder, 'package.json');
  const fields = JSON.parse(readFileSync(manifest, 'utf8'));
  writeFileSync(manifest, `${JSON.stringify({ ...fields, ...addresses }, undefined, 2)}\n`);
}
if (site !== undefined) {
  // A page `05-models.md` has the address `guide/models/`, the first one `guide/`.
  const readme = join(folder, 'README.md');
  const links = /\]\(web\/demo\/guide\/\d\d-([a-z-]+)\.md(#[^)]*)?\)/g;
  const addressed = readFileSync(readme, 'utf8').replace(links, (_, page, heading = '') => {
    return `](${site}guide/${page === 'index' ? '' : `${page}/`}${heading})`;
  });
  writeFileSync(readme, addressed);
}
