"""Byte-pair encoding: frequent words stay whole, rare ones are spelled from pieces (Sennrich et al. 2016).

The `tokenizers` library does the work; this file gives it the course's special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from course_utils.text import SPECIALS, UNK, Pair, Vocabulary


class Subwords:
    """One set of pieces for both languages. A piece that starts a word begins with ``▁``."""

    def __init__(self, text: str) -> None:
        """From what ``to_json`` gave."""
        from tokenizers import Tokenizer

        self._bpe = Tokenizer.from_str(text)
        ids = self._bpe.get_vocab()
        self.vocabulary = Vocabulary(sorted(ids, key=ids.__getitem__))

    @classmethod
    def learn(cls, sentences: Iterable[str], size: int = 10_000) -> Subwords:
        """Learn at most ``size`` pieces, special tokens included. The same sentences give the same pieces."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        bpe = Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
        bpe.normalizer = normalizers.NFC()
        bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        bpe.decoder = decoders.Metaspace()
        bpe.train_from_iterator(
            sentences, trainers.BpeTrainer(vocab_size=size, special_tokens=list(SPECIALS), show_progress=False)
        )
        return cls(bpe.to_str())

    def to_json(self) -> str:
        return self._bpe.to_str()

    def pieces(self, sentence: str) -> tuple[str, ...]:
        """The sentence cut up: Zwei Hunde. -> ("▁Zwei", "▁Hunde", ".")."""
        return tuple(self._bpe.encode(sentence).tokens)

    def sentence(self, pieces: Iterable[str]) -> str:
        """The pieces as text again."""
        return "".join(pieces).replace("▁", " ").strip()

    def pairs(self, sources: Iterable[str], targets: Iterable[str]) -> list[Pair]:
        """Sentence pairs, both sides in pieces."""
        return [Pair(self.pieces(s), self.pieces(t)) for s, t in zip(sources, targets, strict=True)]
