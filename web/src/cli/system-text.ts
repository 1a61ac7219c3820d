import { getSystemErrorMap } from 'node:util';

/** The system's text for an error, such as `no such file or directory`. */
export function systemText(cause: unknown): string {
  const { errno, message } = cause as NodeJS.ErrnoException;
  return (errno === undefined ? undefined : getSystemErrorMap().get(errno)?.[1]) ?? message;
}
