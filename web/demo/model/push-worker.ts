// Pushes results to the hub, apart from the page: large files are hashed, and cut into chunks.
import { __internal_sha256, commitIter, createRepo, pathsInfo } from '@huggingface/hub';
import type { PushResult } from 'scalepoint/model';
import {
  alongOnHub,
  askHub,
  type CardResult,
  HubFile,
  namesAlong,
  openPush,
  type PushFile,
  type PushOptions,
  pathOnHub,
} from '../../src/tooling.js';
import { answerCalls } from '../shared/calls.js';
import { inputOf, type PageFile } from '../shared/page-files.js';

/** The account that a push uses. */
export interface Account {
  readonly endpoint: string;
  readonly token: string;
}

/** A push: plain data, and files. */
interface PushQuestion extends Account, Pick<PushOptions, 'repository' | 'visibility' | 'overwrite' | 'pullRequest'> {
  /** The result, its main file first. */
  readonly files: readonly PushFile[];
  /** True if the files lie in their folder as programs look for them. */
  readonly isFolder: boolean;
  /** The file of the model, if it is on the hub. */
  readonly model: PageFile;
  /** Files of the model that programs need beside the result. */
  readonly along: readonly PushFile[];
  readonly card: Omit<CardResult, 'file'>;
}

/** The calls of the page. */
const calls = {
  /** The name of the user of a token. */
  async user({ endpoint, token }: Account): Promise<string> {
    const settings = { endpoint, token: { text: token, from: 'this page' }, isOffline: false };
    const { name } = (await askHub(settings, { id: 'your account' }, 'whoami-v2', undefined)) as { name?: unknown };
    return typeof name === 'string' ? name : '';
  },

  async push(
    { files, isFolder, model, along, card, ...options }: PushQuestion,
    onProgress: (progress: Parameters<NonNullable<PushOptions['onProgress']>>[0]) => void,
  ): Promise<PushResult> {
    const input = inputOf([model]);
    const source = input instanceof HubFile ? input : undefined;
    const isAlone = isFolder || files.every(({ path }) => path.endsWith('.gguf'));
    const beside = isAlone ? [] : source === undefined ? along : await alongOnHub(source, namesAlong);
    const isWhole = [...beside, ...files].some(({ path }) => path === 'config.json');
    const made = isFolder ? files : files.map((file) => ({ ...file, path: pathOnHub(file.path, isWhole) }));
    const [{ path: file }] = made as [PushFile];
    const client = { __internal_sha256, commitIter, createRepo, pathsInfo };
    const push = await openPush({ ...options, source, card: [{ ...card, file }], client, onProgress });
    // Files of the result come before those of the source.
    return push([...new Map([...beside, ...made].map((one) => [one.path, one])).values()]);
  },
};

export type PushCalls = typeof calls;

answerCalls(calls);
