"""The number task, against a rule of Korean numerals written here independently of num2words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_utils.corpora import english_words, korean_syllables, number_pair, number_task

DIGITS = " 일이삼사오육칠팔구"


def korean_rule(number: int) -> str:
    """Sino-Korean numerals: groups of four digits, named 만 and 억; "one" is dropped before 십, 백, 천 and 만."""
    if number == 0:
        return "영"
    groups = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    text = ""
    for place in reversed(range(len(groups))):
        group, unit = groups[place], ["", "만", "억"][place]
        if group == 1 and unit == "만" and place == len(groups) - 1:
            text += unit
        elif group:
            text += _below_ten_thousand(group) + unit
    return text


def _below_ten_thousand(group: int) -> str:
    text = ""
    for power, unit in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit, group = divmod(group, power)
        if digit:
            text += ("" if digit == 1 and unit else DIGITS[digit]) + unit
    return text


@given(st.integers(0, 99_999))
def test_korean_follows_the_rule(number: int) -> None:
    assert "".join(korean_syllables(number)) == korean_rule(number)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (105, "one hundred five"),
        (12_345, "twelve thousand three hundred forty five"),
        (999_999_999, "nine hundred ninety nine million nine hundred ninety nine thousand nine hundred ninety nine"),
    ],
)
def test_english_is_plain_words(number: int, words: str) -> None:
    assert " ".join(english_words(number)) == words


def test_train_and_test_do_not_overlap_and_are_the_size_asked() -> None:
    task = number_task(train=3_000, test=300)
    assert (len(task.train), len(task.test)) == (3_000, 300)
    assert not {p.source for p in task.train} & {p.source for p in task.test}
    assert len(set(task.test)) == 300


def test_the_same_seed_gives_the_same_data_and_another_gives_other() -> None:
    assert number_task(300, 30, seed=5).train == number_task(300, 30, seed=5).train
    assert number_task(300, 30, seed=5).train != number_task(300, 30, seed=6).train


def test_lengths_cover_short_and_long() -> None:
    lengths = {len(p.source) for p in number_task(2_000, 100).train}
    assert lengths == set(range(1, 15))


def test_the_vocabularies_know_every_test_token() -> None:
    task = number_task(3_000, 300)
    assert "<unk>" not in {t for p in task.test for t in task.english.decode(task.english.encode(p.source))}
    assert "<unk>" not in {t for p in task.test for t in task.korean.decode(task.korean.encode(p.target))}


def test_a_small_number_of_digits_ends_with_fewer_test_pairs() -> None:
    task = number_task(train=100, test=50, digits=1)
    assert len(task.train) == 100
    assert len(task.test) < 10


@pytest.mark.parametrize("digits", [0, 13, -1])
def test_digits_out_of_range_are_said_in_words(digits: int) -> None:
    with pytest.raises(ValueError, match="1 to 12"):
        number_task(10, 10, digits=digits)


def test_a_number_out_of_range_is_said_in_words() -> None:
    with pytest.raises(ValueError, match="outside"):
        number_pair(10**12)
