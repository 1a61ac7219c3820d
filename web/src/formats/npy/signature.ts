/** Recognizes .npy files. */
/** The first bytes of every .npy file. */
export const npyMagic: readonly number[] = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];

export const npySignature = {
  name: 'npy',
  label: 'npy',
  files: '.npy',
  extensions: ['.npy'],
  magic: npyMagic,
} as const;
