import { describe, expect, it } from 'vitest';
import { dataProgressText, progressText } from '../../../web/src/cli/process.js';

const at = (bytesDone: number, width: number, tensor = 'model.layers.7.mlp.down_proj.weight') =>
  progressText({ tensor, bytesDone, bytesTotal: 3e9 }, 10_000, width);

describe('the line of progress', () => {
  it('holds all of it in a wide terminal', () => {
    expect(at(1.5e9, 119)).toBe(
      ' 50% ██████████░░░░░░░░░░ 1.50 GB of 3.00 GB  10 s left  model.layers.7.mlp.down_proj.weight',
    );
    expect(at(0, 119)).toBe(
      ' 0% ░░░░░░░░░░░░░░░░░░░░ 0 B of 3.00 GB  model.layers.7.mlp.down_proj.weight'.padStart(77),
    );
    expect(at(3e9, 79)).toBe('100% ████████████████████ 3.00 GB of 3.00 GB  0 s left  model.layers.7.mlp.dow…');
  });

  it('counts tokens that pass a model', () => {
    const at = { phase: 'calibrate', unit: 'tokens', pass: 5, passes: 16, done: 512, total: 2048 } as const;
    // Four and a quarter of 16 passes of 2,048 tokens in ten seconds.
    expect(dataProgressText(at, 10_000, 119)).toBe(' 26% █████░░░░░░░░░░░░░░░ 54 tokens/s  28 s left  pass 5 of 16');
    // The run went on with the fifth pass: a quarter of one of twelve passes.
    expect(dataProgressText(at, 10_000, 119, 4)).toBe(
      '  2% ░░░░░░░░░░░░░░░░░░░░ 4.3 tokens/s  7 min 50 s left  pass 5 of 16',
    );
    expect(dataProgressText(at, 10_000, 29)).toBe(' 26% ██░░░░░░  28 s left');
  });

  it('is shorter in a narrow one', () => {
    expect(at(1.5e9, 39)).toBe(' 50% ████░░░░  10 s left  model.layers…');
    expect(at(1.5e9, 29)).toBe(' 50% ████░░░░  10 s left');
    expect(at(1.5e9, 19)).toBe(' 50% ████░░░░');
    expect(at(1.5e9, 9)).toBe(' 50%');
    expect(at(1.5e9, 2)).toBe('');
    expect(at(1.5e9, 0)).toBe('');
    expect(at(1.5e9, -1)).toBe('');
  });

  it('never is wider than the terminal, and stays one line', () => {
    const names = ['w', 'model.layers.7.mlp.down_proj.weight', '模型.层.七.权重', 'a\nb\tc', '😀'.repeat(40), ''];
    for (const name of names) {
      for (let width = 0; width < 130; width++) {
        for (const done of [0, 1, 29e6, 1e9, 3e9]) {
          const text = at(done, width, name);
          const columns = [...text].reduce((sum, character) => {
            const isWide = /[\u{1100}-\u{115f}\u{2e80}-\u{ffdc}\u{1f300}-\u{1faff}]/u.test(character);
            return sum + (isWide ? 2 : 1);
          }, 0);
          expect(columns, JSON.stringify(text)).toBeLessThanOrEqual(width);
          expect(text).not.toMatch(/[\n\r\t]/);
        }
      }
    }
  });
});
