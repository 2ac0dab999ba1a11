"""English number words to Korean number words, made offline.

English groups digits by thousands, Korean by ten-thousands (만), so the two do not run in parallel. The sentences
come from rules (the num2words library), not from people: good for seeing what a model learns, no more.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from num2words import num2words

from course_utils.text import Corpus, Pair, Vocabulary

LARGEST_DIGITS = 12


def english_words(number: int) -> tuple[str, ...]:
    """123 -> ("one", "hundred", "twenty", "three"): lower case, without hyphens, commas and "and"."""
    words = num2words(number).replace("-", " ").replace(",", " ").split()
    return tuple(word for word in words if word != "and")


def korean_syllables(number: int) -> tuple[str, ...]:
    """123 -> ("백", "이", "십", "삼"): one token a syllable, without spaces."""
    return tuple(num2words(number, lang="ko").replace(" ", ""))


GERMAN = re.compile(
    "tausend|hundert|zwanzig|dreißig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig|sechzehn|siebzehn|zehn|elf|zwölf|"
    "eins|ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun|null|und"
)


def german_parts(number: int) -> tuple[str, ...]:
    """345 -> ("drei", "hundert", "fünf", "und", "vierzig"): dreihundertfünfundvierzig, cut where its words meet."""
    if not 0 <= number < 1_000_000:
        raise ValueError(f"German parts are known from 0 to 999,999; {number} is outside.")
    return tuple(GERMAN.findall(num2words(number, lang="de")))


@lru_cache(maxsize=200_000)
def number_pair(number: int) -> Pair:
    """English words and Korean syllables of one number, 0 to 10**12 - 1."""
    if not 0 <= number < 10**LARGEST_DIGITS:
        raise ValueError(f"Numbers from 0 to 10**{LARGEST_DIGITS} - 1 can be read aloud here; {number} is outside.")
    return Pair(english_words(number), korean_syllables(number))


@dataclass(frozen=True)
class NumberTask:
    """Training and test pairs with their vocabularies; no test number occurs in training."""

    train: list[Pair]
    test: list[Pair]
    english: Vocabulary
    korean: Vocabulary


def number_task(train: int = 20_000, test: int = 1_000, digits: int = 9, seed: int = 0) -> NumberTask:
    """Number words, English to Korean, with 1 to ``digits`` digits.

    The number of digits is drawn first and uniformly: drawn by value, nine numbers in ten would have the most digits.
    One number in ten is kept for the test, where every number occurs once; in training short ones repeat.

    Args:
        train, test: how many pairs. The test may come out smaller when few short numbers are left to draw.
        digits: the most digits, 1 to 12.
        seed: the same seed gives the same pairs.
    """
    if not 1 <= digits <= LARGEST_DIGITS:
        raise ValueError(f"digits must be from 1 to {LARGEST_DIGITS}, and it is {digits}.")
    rng = random.Random(seed)
    numbers: list[int] = []
    held_out: dict[int, None] = {}  # a dict keeps its order, a set does not
    for _ in range(200 * (train + test)):
        if len(numbers) == train and len(held_out) == test:
            break
        number = _draw(rng, digits)
        if _is_held_out(number, seed):
            if len(held_out) < test:
                held_out[number] = None
        elif len(numbers) < train:
            numbers.append(number)
    pairs = [number_pair(n) for n in numbers]
    return NumberTask(
        train=pairs,
        test=[number_pair(n) for n in held_out],
        english=Vocabulary.from_sentences(p.source for p in pairs),
        korean=Vocabulary.from_sentences(p.target for p in pairs),
    )


@dataclass(frozen=True)
class TwoTasks:
    """The same numbers into Korean and into German. The target vocabulary is one for both."""

    korean: tuple[list[Pair], list[Pair]]  # train, test
    german: tuple[list[Pair], list[Pair]]
    english: Vocabulary
    target: Vocabulary


def two_tasks(tagged: bool = True, largest: int = 999, test: int = 150, seed: int = 0) -> TwoTasks:
    """All numbers up to ``largest``, of which ``test`` are kept for testing, the same ones in both languages.

    Args:
        tagged: the first source token names the language asked for; without it, nothing in the input does.
    """
    numbers = list(range(largest + 1))
    random.Random(seed).shuffle(numbers)

    def pairs(tag: str, say: Callable[[int], tuple[str, ...]]) -> tuple[list[Pair], list[Pair]]:
        all_pairs = [Pair(((tag,) if tagged else ()) + english_words(n), say(n)) for n in numbers]
        return all_pairs[test:], all_pairs[:test]

    korean, german = pairs("<korean>", korean_syllables), pairs("<german>", german_parts)
    both = [*korean[0], *german[0]]
    return TwoTasks(
        korean,
        german,
        Vocabulary.from_sentences(p.source for p in both),
        Vocabulary.from_sentences(p.target for p in both),
    )


def number_sentences(train: int = 20_000, val: int = 200, test: int = 500, digits: int = 9, seed: int = 0) -> Corpus:
    """``number_task`` as whole sentences, "three hundred five" and "삼백오", split as a translation corpus is."""
    task = number_task(train, val + test, digits, seed)

    def lines(pairs: list[Pair]) -> tuple[list[str], list[str]]:
        return [" ".join(p.source) for p in pairs], ["".join(p.target) for p in pairs]

    return Corpus(lines(task.train), lines(task.test[:val]), lines(task.test[val:]))


def _draw(rng: random.Random, digits: int) -> int:
    length = rng.randint(1, digits)
    return rng.randrange(10 ** (length - 1) if length > 1 else 0, 10**length)


def _is_held_out(number: int, seed: int) -> bool:
    return random.Random(f"{seed}/{number}").random() < 0.1
