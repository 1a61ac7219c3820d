// Keeps the best of many scores.

/** Collects the best k of the offered scores: a heap with the worst on top. Scores are offered in the order of their indices. */
export class Best {
  readonly #k: number;
  readonly #scores: number[] = [];
  readonly #indices: number[] = [];

  constructor(k: number) {
    this.#k = k;
  }

  /** Exclusive lower bound of further scores. Of equal scores, the first stays. */
  get threshold(): number {
    return this.#scores.length < this.#k ? -Infinity : (this.#scores[0] as number);
  }

  offer(score: number, index: number): void {
    if (this.#scores.length < this.#k) this.#add(score, index);
    else if (score > (this.#scores[0] as number)) this.#replaceWorst(score, index);
  }

  /** Moves parents that are better than the new one down, from the end upwards. */
  #add(score: number, index: number): void {
    const scores = this.#scores;
    const indices = this.#indices;
    let at = scores.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!worse(score, index, scores[parent] as number, indices[parent] as number)) break;
      scores[at] = scores[parent] as number;
      indices[at] = indices[parent] as number;
      at = parent;
    }
    scores[at] = score;
    indices[at] = index;
  }

  /** Moves children that are worse than the new one up, from the top downwards. */
  #replaceWorst(score: number, index: number): void {
    const scores = this.#scores;
    const indices = this.#indices;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= scores.length) break;
      const right = child + 1;
      if (
        right < scores.length &&
        worse(scores[right] as number, indices[right] as number, scores[child] as number, indices[child] as number)
      ) {
        child = right;
      }
      if (!worse(scores[child] as number, indices[child] as number, score, index)) break;
      scores[at] = scores[child] as number;
      indices[at] = indices[child] as number;
      at = child;
    }
    scores[at] = score;
    indices[at] = index;
  }

  /** The scores and their indices, best first. */
  sorted(): { score: number; index: number }[] {
    return this.#scores
      .map((score, i) => ({ score, index: this.#indices[i] as number }))
      .sort((a, b) => b.score - a.score || a.index - b.index);
  }
}

function worse(score: number, index: number, otherScore: number, otherIndex: number): boolean {
  return score < otherScore || (score === otherScore && index > otherIndex);
}
