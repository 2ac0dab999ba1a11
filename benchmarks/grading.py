"""Wall time of grading against nbgrader and otter-grader, on equal notebooks, on one machine, in one run.

    python benchmarks/grading.py TOOLS [--submissions 200] [--others 24] [--rounds 3]

TOOLS is a folder for two environments, TOOLS/nbgrader and TOOLS/otter; they are made with pip where they are missing.

Two notebooks: exercise 0.2 alone, with torch imported as in every exercise of the course, and lesson 03's five
exercises, solved. nbgrader and otter get test cells of one example with ``allclose`` for each exercise; this course
gets its own cases, five to ten for each exercise, and compares a wrong answer with all known mistakes. In the class,
every second answer to 0.2 is wrong. Ours runs with two workers; nbgrader grades one after another, as it does;
otter runs two commands at a time. The others grade fewer submissions, since only their rate is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
SETUP = "import numpy as np\nimport torch"
RIGHT = "# Exercise 0.2\ndef outer_difference(a, b):\n    return a[:, None] - b[None, :]"
WRONG = "# Exercise 0.2\ndef outer_difference(a, b):\n    return a[None, :] - b[:, None]"

# Exercise -> (the function it defines, a test of the usual kind)
TESTS = {
    "0.2": (
        "outer_difference",
        "a, b = np.arange(4.0), np.arange(6.0)\nassert np.allclose(outer_difference(a, b), np.subtract.outer(a, b))",
    ),
    "3.1": (
        "project_qkv",
        "x, W = np.ones((4, 7)), np.ones((7, 3))\nassert all(np.allclose(m, x @ W) for m in project_qkv(x, W, W, W))",
    ),
    "3.2": (
        "attention",
        "q = torch.randn(2, 3, 4, dtype=torch.float64)\nout, weights = attention(q, q, q)\n"
        "assert torch.allclose(out, torch.nn.functional.scaled_dot_product_attention(q, q, q))",
    ),
    "3.3": (
        "self_attention",
        "x, W = torch.randn(2, 3, 4), torch.randn(4, 4)\nassert self_attention(x, W, W, W)[0].shape == (2, 3, 4)",
    ),
    "3.4": ("score_std", "assert 3 < float(score_std(16, 4000, torch.Generator().manual_seed(0))) < 5"),
    "3.5": (
        "attend_one",
        "q, K = torch.randn(4), torch.randn(3, 4)\n"
        "assert torch.allclose(attend_one(q, K, K), (K @ q / 2).softmax(0) @ K, atol=1e-6)",
    ),
}


def code(source: str, name: str, **metadata: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": []}
    return {**cell, "id": name, "source": source}


def notebook(cells: list[dict[str, Any]]) -> str:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


def with_tests(answers: dict[str, str], setup: str = SETUP) -> str:
    """A notebook with nbgrader's metadata; the other two do not mind it."""
    cells = [code(setup, "setup")]
    for exercise, source in answers.items():
        name = exercise.replace(".", "-")
        common = {"schema_version": 3, "cell_type": "code", "locked": False, "task": False}
        answer = {**common, "grade": False, "solution": True, "grade_id": f"a{name}"}
        test = {**common, "grade": True, "solution": False, "locked": True, "points": 1, "grade_id": f"t{name}"}
        cells.append(code(source, f"a{name}", nbgrader=answer))
        cells.append(code(TESTS[exercise][1], f"t{name}", nbgrader=test))
    return notebook(cells)


def lesson_03() -> str:
    cells = json.loads((ROOT / "solutions/03_self_attention.ipynb").read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    answers = {e: s for s in sources for e in TESTS if s.startswith(f"# Exercise {e}\n")}
    return with_tests(answers, f"{SETUP}\nimport math\nimport torch.nn.functional as F")


def environment(tools: Path, name: str, package: str) -> Path:
    """The folder with the programs of an environment that has ``package``."""
    programs = tools / name / ("Scripts" if os.name == "nt" else "bin")
    if not programs.exists():
        subprocess.run([sys.executable, "-m", "venv", tools / name], check=True)
        pip = [programs / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
        subprocess.run([*pip, package, "ipykernel", "numpy", "torch"], check=True)
    return programs


def run(command: list[object], folder: Path, programs: Path | None = None) -> None:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}" if programs else os.environ["PATH"]
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


class Nbgrader:
    name = "nbgrader autograde"

    def __init__(self, tools: Path, work: Path) -> None:
        self.programs, self.work = environment(tools, "nbgrader", "nbgrader"), work

    def prepare(self, name: str, model: str, submissions: dict[str, str]) -> Callable[[], None]:
        folder = self.work / f"nbgrader-{name}"
        (folder / "source" / "ps").mkdir(parents=True)
        (folder / "source" / "ps" / "x.ipynb").write_text(model, encoding="utf-8")
        (folder / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'c'\n")
        run(["nbgrader", "generate_assignment", "ps", "--force"], folder, self.programs)
        for learner, text in submissions.items():
            (folder / "submitted" / learner / "ps").mkdir(parents=True)
            (folder / "submitted" / learner / "ps" / "x.ipynb").write_text(text, encoding="utf-8")
        return lambda: run(["nbgrader", "autograde", "ps", "--force"], folder, self.programs)


class Otter:
    name = "otter run"

    def __init__(self, tools: Path, work: Path) -> None:
        self.programs, self.work = environment(tools, "otter", "otter-grader"), work

    def prepare(self, name: str, model: str, submissions: dict[str, str]) -> Callable[[], None]:
        folder = self.work / f"otter-{name}"
        (folder / "tests").mkdir(parents=True)
        for exercise, (function, test) in TESTS.items():
            if f"# Exercise {exercise}" in model:
                body = "\n    ".join(test.splitlines())
                (folder / "tests" / f"q{exercise.replace('.', '_')}.py").write_text(
                    "import numpy as np\nimport torch\nfrom otter.test_files import test_case\n\nOK_FORMAT = False\n"
                    f"name = 'q{exercise.replace('.', '_')}'\npoints = 1\n\n\n@test_case()\n"
                    f"def test({function}):\n    {body}\n",
                    encoding="utf-8",
                )
        run(["otter", "generate", "-t", "tests", "--no-environment"], folder, self.programs)
        for learner, text in submissions.items():
            (folder / learner).mkdir()
            (folder / learner / "x.ipynb").write_text(text, encoding="utf-8")

        def grade(learner: str) -> None:
            here = folder / learner
            run(["otter", "run", "-a", folder / "autograder.zip", "-o", here, here / "x.ipynb"], here, self.programs)

        def everything() -> None:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(grade, submissions))

        return everything


class Ours:
    name = "course grade"

    def __init__(self, work: Path) -> None:
        self.work, self.memory = work, 0.0

    def prepare(self, name: str, model: str, submissions: dict[str, str]) -> Callable[[], None]:
        folder = self.work / f"ours-{name}"
        for learner, text in submissions.items():
            (folder / learner).mkdir(parents=True)
            (folder / learner / "x.ipynb").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "course_utils.cli", "grade"]
        if len(submissions) == 1:
            return lambda: run([*command, *(folder / learner for learner in submissions)], ROOT)

        def everything() -> None:
            book = self.work / f"{name}.sqlite"
            for path in self.work.glob(f"{book.name}*"):
                path.unlink()
            with self._measured():
                run([*command, folder, "--gradebook", book, "--workers", "2"], ROOT)

        return everything

    def _measured(self) -> Any:
        return _Memory(self)


class _Memory:
    """The most that the processes below this one take, shared pages counted once, for each of two workers."""

    def __init__(self, owner: Ours) -> None:
        self.owner, self.stop = owner, threading.Event()

    def __enter__(self) -> None:
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.stop.wait(1.0):
            total = sum(_proportional(p) for p in psutil.Process().children(recursive=True))
            self.owner.memory = max(self.owner.memory, total / 2 / 2**20)


def _proportional(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def class_of(count: int) -> Iterator[tuple[str, str]]:
    for i in range(count):
        yield f"learner{i:03d}", with_tests({"0.2": WRONG if i % 2 else RIGHT}, f"{SETUP}\n# {i}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tools", type=Path)
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--others", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="course-benchmark-"))
    try:
        ours = Ours(work)
        tools = [ours, *(kind(options.tools.resolve(), work) for kind in (Nbgrader, Otter))]
        for title, text in {"one exercise": with_tests({"0.2": RIGHT}), "lesson 03": lesson_03()}.items():
            works = {t.name: t.prepare(title.replace(" ", ""), text, {"someone": text}) for t in tools}
            times: dict[str, list[float]] = {name: [] for name in works}
            for _ in range(options.rounds):
                for name, one in works.items():
                    times[name].append(seconds(one))
            _tell(title, {name: statistics.median(t) for name, t in times.items()}, ours.name, "s a notebook", True)
        model = with_tests({"0.2": RIGHT})
        rates = {}
        for tool in tools:
            count = options.submissions if tool is ours else options.others
            rates[tool.name] = 60 * count / seconds(tool.prepare("class", model, dict(class_of(count))))
        _tell("a class", rates, ours.name, "submissions a minute", False)
        print(f"memory: {ours.memory:.0f} MB for each of two workers, with all their processes, at most")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _tell(title: str, figures: dict[str, float], ours: str, unit: str, small_is_good: bool) -> None:
    for name, figure in figures.items():
        ratio = figure / figures[ours] if small_is_good else figures[ours] / figure
        print(f"{title:14}{name:20}{figure:8.2f} {unit:22}ours is {ratio:5.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
