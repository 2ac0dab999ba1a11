"""The core of ``check``: running an answer, comparing, judging, and carrying outcomes between processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from course_utils import check
from course_utils.checks import Case, Exercise, Misconception, exercises, find, lessons, seed_for
from course_utils.grading import progress
from course_utils.grading.compare import first_difference
from course_utils.grading.judge import Verdict, check_answer, judge
from course_utils.grading.run import plain, run_answer

DOUBLE = Exercise(
    id="99.1",
    title="Double",
    points=2,
    function="double",
    reference=lambda x: 2 * x,
    cases=lambda draw: [Case((draw.normal(3, 5),)), Case((draw.normal(1, 1),), "with a single number")],
    misconceptions=(
        Misconception("squares", lambda x: x * x, "You multiplied `x` by itself."),
        Misconception("the reference itself", lambda x: x + x, "Never said: no case tells it from right."),
    ),
    why="Twice is twice.",
)


def verdict(answer: Callable[..., Any], exercise: Exercise = DOUBLE, seed: int = 7) -> Verdict:
    return check_answer(exercise, answer, seed)


def wrong_line(x: torch.Tensor) -> torch.Tensor:
    return x @ x.new_ones(1000)


def changes_its_input(x: torch.Tensor) -> torch.Tensor:
    x *= 2
    return x.clone()


def not_written(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


def test_a_right_answer_passes_and_says_why() -> None:
    assert verdict(lambda x: x + x) == Verdict("passed", "Twice is twice.")


def test_the_same_seed_gives_the_same_cases() -> None:
    first, second = DOUBLE.draw_cases(3), DOUBLE.draw_cases(3)
    assert all(torch.equal(a.args[0], b.args[0]) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0].args[0], DOUBLE.draw_cases(4)[0].args[0])
    assert seed_for("2.1") == seed_for("2.1") != seed_for("2.2")


def test_a_known_mistake_is_named() -> None:
    assert verdict(lambda x: x**2) == Verdict("wrong", "You multiplied `x` by itself.", "squares")


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (not_written, "not_attempted", ""),
        (lambda x: None, "wrong", "is a `return` missing?"),
        (lambda x: (2 * x).numpy(), "wrong", "should be a torch tensor of shape (3, 5), and it is a NumPy array"),
        (lambda x: (2 * x).tolist(), "wrong", "and it is the list"),
        (lambda x: (2 * x)[None], "wrong", "should have shape (3, 5), and it has (1, 3, 5)"),
        (lambda x: (2 * x).sum(0, keepdim=True).expand(1, 5), "wrong", "it has (1, 5)"),
        (lambda x: (2 * x).float(), "wrong", "keep the input's dtype (float64), and it is float32"),
        (lambda x: 2 * x / (x != x.max()), "wrong", "first differs"),
        (lambda x: 2 * x + math.nan, "wrong", "holds NaN at index [0, 0]"),
        (lambda x: 2 * x if x.numel() > 1 else x, "wrong", "Right on the ordinary cases, but not with a single number"),
        (lambda x: x[7], "error", "IndexError"),
        (wrong_line, "error", "on your line `return x @ x.new_ones(1000)`"),
        (lambda x, y: x, "error", "TypeError"),
        (lambda x: 10**400, "wrong", "should be a torch tensor"),
        (lambda x: {"a": x}, "wrong", "an object of type dict"),
        (lambda x: (2 * x).to_sparse(), "wrong", "should be"),
    ],
)
def test_what_is_said_of_a_wrong_answer(answer: Callable[..., Any], status: str, said: str) -> None:
    found = verdict(answer)
    assert found.status == status
    assert said in found.message
    assert found.misconception is None


def test_right_values_with_bad_manners_do_not_pass() -> None:
    assert verdict(changes_its_input).misconception == "changes its input"
    same = Exercise("99.2", "Same", 1, "same", lambda x: x.clone(), DOUBLE.cases, (), "")
    assert verdict(lambda x: x.view(x.shape), same).misconception == "returns a view of its input"
    views = Exercise("99.3", "Same", 1, "same", lambda x: x.clone(), DOUBLE.cases, (), "", views_allowed=True)
    assert verdict(lambda x: x.view(x.shape), views).status == "passed"


def test_what_torch_does_not_implement_is_not_a_stub() -> None:
    def half_written(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.Module()(x)

    assert verdict(half_written).status == "error"


def test_calling_the_reference_is_not_an_answer() -> None:
    exercise = find("0.2")
    assert exercise is not None
    assert verdict(lambda a, b: exercise.reference(a, b), exercise).misconception == "calls the reference"


def test_an_error_that_is_asked_for_must_be_raised() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("odd")

    def refuses_too(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("in other words")

    exercise = Exercise("99.4", "Half", 1, "half", refuses, DOUBLE.cases, (), "")
    assert verdict(refuses_too, exercise).status == "passed"
    assert "ValueError is to be raised here, and your code returned a value" in verdict(lambda x: x, exercise).message
    assert "raised IndexError" in verdict(lambda x: x[10], exercise).message


def test_a_run_that_was_cut_short_does_not_pass() -> None:
    outcomes = run_answer(DOUBLE, lambda x: 2 * x, DOUBLE.draw_cases(7))
    assert judge(DOUBLE, 7, outcomes).status == "passed"
    assert judge(DOUBLE, 7, outcomes[:1]).status == "error"
    assert judge(DOUBLE, 7, []).status == "error"


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1, 2], [1.0, 2.0]),
        ([0.1 + 0.2, 1.0], [0.3, 1.0]),
        (3, torch.tensor(3)),
        (0.5, np.float64(0.5 + 1e-12)),
        (math.nan, math.nan),
        ([torch.ones(2), 3], [torch.ones(2), 3]),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        (torch.tensor([math.nan, -math.inf]), torch.tensor([math.nan, -math.inf])),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
    ],
)
def test_equal(expected: Any, got: Any) -> None:
    assert first_difference(expected, got) is None


@pytest.mark.parametrize(
    ("expected", "got", "kind"),
    [
        ([1, 2], [1, 2, 3], "value"),
        ([1, 2], [np.ones(2), 2], "value"),
        ([1, 2], [torch.ones(2), 2], "value"),
        ([1.0, 2.0], [1.0, 2.1], "value"),
        (65_000_000, 65_000_001, "value"),
        (0.5, 10**400, "value"),
        (5, True, "type"),
        (True, 1, "value"),
        ("a", None, "value"),
        (0.5, torch.ones(2), "type"),
        (torch.ones(3), torch.ones(1, 3), "shape"),
        (torch.ones(3, 1), torch.ones(3), "shape"),
        (np.ones(3), np.ones(3, dtype=np.float32), "dtype"),
        (torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool), "value"),
        (torch.ones(2), torch.tensor([1, math.nan]), "nan"),
        ([torch.ones(2), torch.ones(3)], [torch.ones(2)], "type"),
        ([torch.ones(2), torch.ones(3)], torch.ones(2), "type"),
    ],
)
def test_different(expected: Any, got: Any, kind: str) -> None:
    difference = first_difference(expected, got)
    assert difference is not None
    assert difference.kind == kind


def test_a_subclass_cannot_speak_for_itself() -> None:
    class Liar(torch.Tensor):
        pass

    assert plain(torch.ones(2).as_subclass(Liar)) == "<Liar>"
    assert plain((1, [np.float64(2)], None)) == [1, [2.0], None]


def test_every_exercise_is_found_by_its_id() -> None:
    for lesson in lessons():
        for exercise in exercises(lesson):
            assert find(exercise.id) is exercise
            assert exercise.lesson == lesson
    assert find("99.9") is None
    assert find("../etc") is None


def outer_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.reshape(-1, 1) - b


def test_check_prints_outside_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    result = check("0.2", outer_difference)
    assert result.passed
    assert result.points == result.possible == 1
    printed = capsys.readouterr().out
    assert printed.startswith("✓ 0.2 Outer difference: passed, 1 of 1 point")
    assert "<" not in printed


def test_check_shows_html_in_a_notebook() -> None:
    shell = InteractiveShell.instance()
    try:
        shell.user_ns.update(check=check, f=outer_difference)
        with capture_output() as shown:
            ran = shell.run_cell('check("0.2", f)')
        assert ran.success
        [bundle] = [output.data for output in shown.outputs]
        assert bundle["text/plain"].startswith("✓ 0.2")
        assert "One way to write it" in bundle["text/html"]
        assert "✓" not in shown.stdout
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("0.2", 3), "without calling it"),
        (("0.99", outer_difference), "Lesson 0 has the exercises"),
        (("x", outer_difference), "Exercises are named like"),
    ],
)
def test_a_check_that_is_called_wrongly_says_how(call: tuple[str, Any], said: str) -> None:
    result = check(*call)
    assert (result.status, result.passed, result.points) == ("error", False, 0)
    assert said in result.message


def test_html_is_escaped() -> None:
    def stops(a: np.ndarray, b: np.ndarray) -> None:
        raise ValueError("<script>alert(1)</script>")

    page = check("0.2", stops)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_failed_check_never_shows_the_solution() -> None:
    result = check("0.2", lambda a, b: a[None, :] - b[:, None])
    assert result.misconception == "transposed"
    assert result.model_answer == ""
    assert "✗ 0.2 Outer difference: transposed" in str(result)


def test_what_was_passed_is_remembered(own_home: Path) -> None:
    assert progress.passed() == {}
    check("0.2", outer_difference)
    assert progress.passed()["0.2"]["points"] == 1
    (own_home / "progress" / "0.1.json").write_text("{", encoding="utf-8")
    (own_home / "progress" / "0.3.json").write_text("[]", encoding="utf-8")
    assert list(progress.passed()) == ["0.2"]


def test_the_solutions_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "solutions"
    folder.mkdir()
    monkeypatch.chdir(folder)
    check("0.2", outer_difference)
    assert progress.passed() == {}


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    progress.write_atomically(path, "first")
    with pytest.raises(UnicodeEncodeError):
        progress.write_atomically(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "first"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
    ordinary = tmp_path / "ordinary.txt"
    ordinary.write_text("", encoding="utf-8")
    assert path.stat().st_mode == ordinary.stat().st_mode


def test_a_full_disk_does_not_stop_a_lesson(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_home.joinpath("progress").write_text("a file in the way", encoding="utf-8")
    assert check("0.2", outer_difference).passed
    assert "could not be saved" in capsys.readouterr().out
