/** JSON for standard output. */

/** Characters that JSON may hold as they are, but that could move the cursor, color the screen or reverse the text of a terminal. */
const disturbing = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * A value as JSON. Integers beyond 2^53 become strings, infinities null. The escaped characters occur in strings only, so the value stays the
 * same.
 */
export function jsonText(value: unknown): string {
  const text = JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? String(item) : item), 2);
  return text.replace(disturbing, (character) =>
    Array.from({ length: character.length }, (_, i) => {
      return `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
    }).join(''),
  );
}
