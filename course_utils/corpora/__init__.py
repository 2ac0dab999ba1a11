"""The course's data: number words made offline, and a real translation corpus that is downloaded once."""

from course_utils.corpora.captions import CorpusMissing, multi30k
from course_utils.corpora.numbers import (
    LARGEST_DIGITS,
    NumberTask,
    english_words,
    korean_syllables,
    number_pair,
    number_sentences,
    number_task,
)
from course_utils.corpora.subwords import Subwords

__all__ = [
    "LARGEST_DIGITS",
    "CorpusMissing",
    "NumberTask",
    "Subwords",
    "english_words",
    "korean_syllables",
    "multi30k",
    "number_pair",
    "number_sentences",
    "number_task",
]
