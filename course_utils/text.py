"""Tokens and numbers: a vocabulary, padding, and batches of like length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
Tokens = Sequence[str]


class Vocabulary:
    """Tokens and their ids. The first four ids are ``<pad> <bos> <eos> <unk>``."""

    def __init__(self, tokens: Iterable[str]) -> None:
        """Keeps the given order; a token given twice counts once."""
        self.tokens: list[str] = list(dict.fromkeys((*SPECIALS, *tokens)))
        self._ids = {token: i for i, token in enumerate(self.tokens)}

    @classmethod
    def from_sentences(cls, sentences: Iterable[Tokens], least: int = 1) -> Vocabulary:
        """Every token seen at least ``least`` times, the commonest first (ties in alphabetical order)."""
        counts = Counter(token for sentence in sentences for token in sentence)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(token for token, count in ranked if count >= least)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, sentence: Tokens) -> list[int]:
        """Ids without ``<bos>`` and ``<eos>``; a token that is not known becomes ``<unk>``."""
        return [self._ids.get(token, UNK) for token in sentence]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens up to the first ``<eos>``, without ``<pad>`` and ``<bos>``."""
        tokens = []
        for i in ids:
            if i == EOS:
                break
            if i not in (PAD, BOS):
                tokens.append(self.tokens[i])
        return tokens


def pad(rows: Sequence[Sequence[int]], value: int = PAD) -> torch.Tensor:
    """(B, longest row) of ids, short rows filled up with ``value`` on the right."""
    longest = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], dtype=torch.long)


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, as tokens."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class Corpus:
    """Each split as (source sentences, target sentences), line by line translations of each other."""

    train: tuple[list[str], list[str]]
    val: tuple[list[str], list[str]]
    test: tuple[list[str], list[str]]


@dataclass(frozen=True)
class Batch:
    """``source`` (B, S) and ``target`` (B, T) ids; the target runs from ``<bos>`` to ``<eos>``, then padding."""

    source: torch.Tensor
    target: torch.Tensor

    @property
    def source_mask(self) -> torch.Tensor:
        """(B, S), True = a real token."""
        return self.source != PAD

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.source.to(device), self.target.to(device))


def make_batch(pairs: Sequence[Pair], source: Vocabulary, target: Vocabulary) -> Batch:
    return Batch(
        pad([source.encode(p.source) for p in pairs]),
        pad([[BOS, *target.encode(p.target), EOS] for p in pairs]),
    )


def endless_batches(
    pairs: Sequence[Pair], source: Vocabulary, target: Vocabulary, size: int, generator: torch.Generator
) -> Iterator[Batch]:
    """Batches of ``size`` pairs for ever, in a new random order each time round.

    Each batch is filled from a pool of 32 batches sorted by length, so that little of it is padding.
    """
    if not pairs:
        raise ValueError("There are no sentence pairs to make batches of.")
    while True:
        order = torch.randperm(len(pairs), generator=generator).tolist()
        for start in range(0, len(order), 32 * size):
            pool = sorted(order[start : start + 32 * size], key=lambda i: len(pairs[i].source))
            cuts = range(0, len(pool), size)
            for cut in torch.randperm(len(cuts), generator=generator).tolist():
                rows = [pairs[i] for i in pool[cuts[cut] : cuts[cut] + size]]
                yield make_batch(rows, source, target)


class TokenBatches:
    """Batches of at most ``budget`` tokens a side, padding included, of sentences of like length, for ever.

    Every time round, sentences of the same length are shuffled among themselves, cut into batches, and the batches
    shuffled. All of it depends on the seed alone, so that training can go on at any step (``skip``).

    Args:
        budget: rows times the longest source or target of a batch is at most this.
        share: (rank, world), for several processes: which rows of every batch are wanted.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        source: Vocabulary,
        target: Vocabulary,
        budget: int,
        seed: int = 0,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        if not pairs:
            raise ValueError("There are no sentence pairs to make batches of.")
        self._rows = [(source.encode(p.source), [BOS, *target.encode(p.target), EOS]) for p in pairs]
        self._lengths = [max(len(s), len(t) - 1) for s, t in self._rows]
        longest = max(self._lengths)
        if budget < longest:
            raise ValueError(f"The longest sentence has {longest} tokens, more than the budget of {budget}.")
        self._budget, self._seed, self._share = budget, seed, share

    def __iter__(self) -> Iterator[Batch]:
        return self.skip(0)

    def skip(self, steps: int) -> Iterator[Batch]:
        """The batches from number ``steps`` on."""
        for epoch in count():
            cuts = self._epoch(epoch)
            for rows in cuts[steps:]:
                yield self._batch(rows)
            steps = max(0, steps - len(cuts))

    def _epoch(self, epoch: int) -> list[list[int]]:
        """Which sentences make each batch, in the order of one time round."""
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + epoch)
        order = sorted(torch.randperm(len(self._rows), generator=generator).tolist(), key=self._lengths.__getitem__)
        batches: list[list[int]] = [[]]
        for i in order:  # by length, so the newest is the longest
            if (len(batches[-1]) + 1) * self._lengths[i] > self._budget:
                batches.append([])
            batches[-1].append(i)
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def _batch(self, rows: list[int]) -> Batch:
        rank, world = self._share
        mine = [self._rows[i] for i in rows[rank::world]] or [([PAD], [BOS, PAD])]
        return Batch(pad([s for s, _ in mine]), pad([t for _, t in mine]))
