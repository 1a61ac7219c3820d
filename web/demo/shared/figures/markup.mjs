// The elements of the figures, which the build puts into pages in place of comments such as <!-- figure: round -->.

/** @type {Readonly<Record<string, string>>} */
const boxes = {
  round: '<div class="figure" id="fig-round"></div>',
  scale: '<div class="figure" id="fig-scale"></div>',
  outlier: '<div class="figure low" id="fig-outlier"></div>',
  groups: `<div class="figure-box">
            <canvas id="groups-picture" aria-hidden="true"></canvas>
            <div class="figure over" id="fig-groups"></div>
            <p class="hint groups-legend" aria-hidden="true"><span class="swatch exact"></span> large numbers <span class="swatch lost"></span> lost to rounding</p>
          </div>`,
  codes: '<div class="figure low" id="fig-codes"></div>',
  'zero-point': '<div class="figure low" id="fig-zero-point"></div>',
  'minus-zero': '<div class="figure low" id="fig-minus-zero"></div>',
  arithmetic: '<div class="figure" id="fig-arithmetic"></div>',
};

/** Names of the figures. */
const figureNames = Object.keys(boxes);

/** The switch of the figure of an outlier. */
const clip = '<div id="fig-outlier-control"></div>';

/** Puts figures, and the switch, into a page. @param {string} html */
export const withFigures = (html) =>
  html.replace('<!-- switch: clip -->', clip).replace(/<!-- figure: ([a-z-]+) -->/g, (_, name) => {
    const box = boxes[name];
    if (box === undefined) throw new Error(`there is no figure ${name}: expected one of ${figureNames.join(', ')}`);
    return box;
  });

/**
 * A figure within text, as HTML: the picture with its sentence.
 * @param {string} name
 */
export const figureInText = (name) => `<figure class="live" data-figure="${name}">
${name === 'outlier' ? '  <!-- switch: clip -->\n' : ''}  <!-- figure: ${name} -->
  <figcaption class="idea-result" id="fig-${name}-words"></figcaption>
</figure>
`;
