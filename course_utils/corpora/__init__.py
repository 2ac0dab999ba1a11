"""The course's data: number words made offline, and a real translation corpus that is downloaded once."""

from course_utils.corpora.captions import CorpusMissing, multi30k
from course_utils.corpora.numbers import (
    LARGEST_DIGITS,
    NumberTask,
    TwoTasks,
    english_words,
    german_parts,
    korean_syllables,
    number_pair,
    number_sentences,
    number_task,
    two_tasks,
)
from course_utils.corpora.subwords import Subwords

__all__ = [
    "LARGEST_DIGITS",
    "CorpusMissing",
    "NumberTask",
    "Subwords",
    "TwoTasks",
    "english_words",
    "german_parts",
    "korean_syllables",
    "multi30k",
    "number_pair",
    "number_sentences",
    "number_task",
    "two_tasks",
]
