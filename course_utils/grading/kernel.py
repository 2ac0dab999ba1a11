"""The canonical check, as it runs inside the learner's kernel: it calls the answer and shows what came back.

Nothing is judged here and no right value is computed here; the grader's own process does both.
"""

from __future__ import annotations

from typing import Any

from course_utils.checks import find, seed_for
from course_utils.grading.protocol import MIME
from course_utils.grading.run import run_answer
from course_utils.grading.wire import pack


def collect(exercise_id: str, nonce: str) -> None:
    """Run the answer to ``exercise_id``, found by its name in the notebook, and display one ``MIME`` bundle.

    Args:
        exercise_id: for instance "2.1".
        nonce: this run's own word, by which the grader knows its own bundle.
    """
    from IPython import get_ipython
    from IPython.display import display

    bundle = {"nonce": nonce, "exercise": exercise_id, "outcomes": _outcomes(exercise_id, get_ipython().user_ns)}
    display({MIME: bundle}, raw=True)


def _outcomes(exercise_id: str, namespace: dict[str, Any]) -> list[dict[str, Any]] | None:
    """None where the notebook defines no such function."""
    exercise = find(exercise_id)
    if exercise is None or exercise.function not in namespace:
        return None
    cases = exercise.draw_cases(seed_for(exercise_id))
    return pack(run_answer(exercise, namespace[exercise.function], cases))
