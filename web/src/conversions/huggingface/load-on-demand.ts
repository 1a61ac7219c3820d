/** The conversion of folders, loaded when it is needed first: few visitors of the page open a folder of a language model. */
export const loadConversion = () => import('./convert.js');
