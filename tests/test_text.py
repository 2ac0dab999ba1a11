"""Vocabulary, padding and batches."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.text import BOS, EOS, PAD, UNK, Pair, Vocabulary, endless_batches, make_batch, pad

WORDS = st.lists(st.text("abc", min_size=1, max_size=2), max_size=6)


@given(WORDS)
def test_a_vocabulary_decodes_what_it_encodes(sentence: list[str]) -> None:
    vocabulary = Vocabulary.from_sentences([sentence])
    assert vocabulary.decode([BOS, *vocabulary.encode(sentence), EOS, PAD]) == sentence


def test_an_unknown_token_becomes_unk_and_specials_come_first() -> None:
    vocabulary = Vocabulary(["b", "a", "b"])
    assert vocabulary.tokens[:4] == ["<pad>", "<bos>", "<eos>", "<unk>"]
    assert vocabulary.encode(["a", "zebra"]) == [5, UNK]
    assert len(vocabulary) == 6


def test_rare_tokens_are_left_out_and_ties_are_alphabetical() -> None:
    vocabulary = Vocabulary.from_sentences([["b", "a", "c"], ["b", "a"]], least=2)
    assert vocabulary.tokens[4:] == ["a", "b"]


@given(st.lists(st.lists(st.integers(4, 9), max_size=5), min_size=1, max_size=5))
def test_pad_keeps_every_row_and_fills_the_rest(rows: list[list[int]]) -> None:
    padded = pad(rows)
    assert padded.shape == (len(rows), max(map(len, rows)))
    for row, kept in zip(rows, padded.tolist(), strict=True):
        assert kept[: len(row)] == row
        assert set(kept[len(row) :]) <= {PAD}


def _pairs(count: int) -> list[Pair]:
    return [Pair(("a",) * (1 + i % 7), ("x",) * (1 + i % 3)) for i in range(count)]


def test_a_batch_has_bos_eos_and_a_mask_where_true_is_a_word() -> None:
    english, korean = Vocabulary(["a"]), Vocabulary(["x"])
    batch = make_batch([Pair(("a",), ("x", "x")), Pair(("a", "a"), ("x",))], english, korean)
    assert batch.target.tolist() == [[BOS, 4, 4, EOS], [BOS, 4, EOS, PAD]]
    assert batch.source_mask.tolist() == [[True, False], [True, True]]


def test_one_round_of_batches_holds_every_pair_once() -> None:
    english, korean = Vocabulary(["a"]), Vocabulary(["x"])
    pairs = _pairs(103)
    batches = endless_batches(pairs, english, korean, 10, torch.Generator().manual_seed(0))
    lengths = [n for batch in itertools.islice(batches, 11) for n in batch.source_mask.sum(1).tolist()]
    assert sorted(lengths) == sorted(len(p.source) for p in pairs)


def test_batches_are_the_same_for_the_same_seed_and_new_each_round() -> None:
    english, korean = Vocabulary(["a"]), Vocabulary(["x"])

    def first(seed: int, count: int) -> list[list[list[int]]]:
        batches = endless_batches(_pairs(60), english, korean, 10, torch.Generator().manual_seed(seed))
        return [batch.source.tolist() for batch in itertools.islice(batches, count)]

    assert first(0, 12) == first(0, 12)
    assert first(0, 6) != first(1, 6)
    rounds = first(0, 12)
    assert rounds[:6] != rounds[6:]


def test_no_pairs_is_said_in_words() -> None:
    with pytest.raises(ValueError, match="no sentence pairs"):
        next(endless_batches([], Vocabulary([]), Vocabulary([]), 4, torch.Generator()))
