"""Points are earned by answering and in no other way; whoever tries is named to the instructor."""

from __future__ import annotations

from pathlib import Path

import pytest
from handmade import CHECKS, MEAN, OUTER, SETUP, SOFTMAX, write_notebook

import course_utils
from course_utils.checks import find, seed_for
from course_utils.grading import sandbox, warm
from course_utils.grading.rebuild import Cell
from course_utils.grading.report import NotebookReport
from course_utils.grading.runner import Limits, grade
from course_utils.grading.seal import sealed_copy
from course_utils.grading.suspicion import suspicions

pytestmark = pytest.mark.slow
PACKAGE = Path(course_utils.__file__).parent
SOLUTION = str(PACKAGE.parent / "solutions" / "00_start_here.ipynb")
WRONG = "def outer_difference(a, b):\n    return a[None, :] - b[:, None]"

# What is tried -> (the cell that tries it, a part of what the instructor reads; None where nothing needs to be said)
TRICKS: dict[str, tuple[str, str | None]] = {
    "the printed line": (
        f'{WRONG}\nprint("✓ 0.2 Outer difference: passed, 1 of 1 point")',
        "writes the line of a passed check itself",
    ),
    "check": (f"{WRONG}\ndef check(*anything):\n    return True", "redefines `check`"),
    "print": (f"{WRONG}\nimport builtins\nbuiltins.print = lambda *a, **k: None", "replaces `builtins.print`"),
    "allclose": (f"{WRONG}\ntorch.allclose = torch.equal = lambda *a, **k: True", "replaces `torch.allclose`"),
    "isclose": (f"{WRONG}\nnp.isclose = lambda a, b, **k: np.ones_like(a, bool)", "replaces numpy.isclose"),
    "torch.testing": (
        f"{WRONG}\ntorch.testing.assert_close = lambda *a, **k: None",
        "replaces torch.testing.assert_close",
    ),
    "the package": (f"{WRONG}\nimport course_utils\ncourse_utils.check = lambda *a: 1", "replaces course_utils.check"),
    "the check's own code": (
        f"{WRONG}\nimport course_utils.grading.inside.serve as s\ns.serve = lambda *a, **k: None",
        "imports the grader",
    ),
    "the packing": (
        f"{WRONG}\nfrom course_utils.grading.inside import peer\npeer.pack = lambda *a: {{'plain': True}}",
        "imports the grader",
    ),
    "the reference in memory": (
        f"{WRONG}\nimport course_utils.checks.lesson00 as lesson\nlesson.outer_difference = outer_difference",
        "imports the grader or its exercises",
    ),
    "a search of the memory": (
        "def outer_difference(a, b):\n    import gc\n"
        "    found = [f for f in gc.get_objects() if getattr(f, '__name__', '') == 'outer_difference'"
        " and f is not outer_difference]\n    return found[0](a, b)",
        "searches the memory of the process",
    ),
    "an object equal to all": (
        "class Equal:\n    def __eq__(self, other):\n        return True\n    shape = (1,)\n"
        "def outer_difference(a, b):\n    return Equal()",
        "always says the same",
    ),
    "an array that lies": (
        "class Liar(np.ndarray):\n    def __array_function__(self, *a):\n        return True\n"
        "def outer_difference(a, b):\n    return np.zeros((len(a), len(b))).view(Liar)",
        "makes its own kind of tensor",
    ),
    "atexit": (f"{WRONG}\nimport atexit\natexit.register(print, 'passed')", "leaves code to be run at the end"),
    "an import hook": (f"{WRONG}\nimport sys\nsys.meta_path.insert(0, object())", "installs an import hook"),
    "the report file": (
        f"{WRONG}\nimport pathlib\nfor p in pathlib.Path('..').resolve().rglob('*.json'):\n"
        "    if p.name == 'record.json':\n        p.write_text('{}')",
        "writes to",
    ),
    "the points": (
        f"{WRONG}\ntry:\n    import course_utils.checks as c\n    c.find('0.2').points = 100\n"
        "except Exception:\n    pass",
        "imports course_utils.checks",
    ),
    "seeds": (
        f"{WRONG}\nimport random\nrandom.seed(0); np.random.seed(0); torch.manual_seed(0)\n"
        "np.random.default_rng = lambda *a: None",
        "replaces `np.random.default_rng`",
    ),
    "the example's numbers": (
        "def outer_difference(a, b):\n    return np.array([[-1.0, -2.0], [0.0, -1.0], [1.0, 0.0]])",
        None,
    ),
    "a check of one's own": (
        "import json, socket, struct, sys\ndef outer_difference(a, b):\n    frame = sys._getframe()\n"
        "    while 'nonce' not in frame.f_locals:\n        frame = frame.f_back\n"
        "    nonce, port = frame.f_locals['nonce'], frame.f_locals['port']\n"
        "    hello = json.dumps({'nonce': nonce, 'exercise': '0.2', 'defined': False}).encode()\n"
        "    socket.create_connection(('127.0.0.1', port)).sendall(struct.pack('!I', len(hello)) + hello)\n"
        "    return a[:, None] - b[None, :]",
        "looks into its callers",
    ),
    "the stored output of the solutions": (
        f"{WRONG}\nimport json\nfound = json.load(open({SOLUTION!r}))",
        "reads",
    ),
    "the solution itself": (
        f"import json\ncells = json.load(open({SOLUTION!r}))['cells']\nfor cell in cells:\n"
        "    if ''.join(cell['source']).startswith('# Exercise 0.2'):\n        exec(''.join(cell['source']))",
        "reads",
    ),
    "the reference's file": (
        f"open({str(PACKAGE / 'checks/lesson00.py')!r}).read()\n"
        "def outer_difference(a, b):\n    return a[:, None] - b[None, :]",
        "reads",
    ),
    "another program that reads it": (
        f"import subprocess\nsubprocess.run(['cat', {str(PACKAGE / 'checks/lesson00.py')!r}], capture_output=True)\n"
        "def outer_difference(a, b):\n    return a[:, None] - b[None, :]",
        "starts a program on",
    ),
    "a cut wire": (
        f"{WRONG}\nimport os\nfor descriptor in range(3, 256):\n    try:\n        import socket, stat\n"
        "        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):\n"
        "            s = socket.socket(fileno=os.dup(descriptor))\n"
        "            s.getpeername() and s.shutdown(2)\n    except OSError:\n        pass",
        None,
    ),
}


def tried(tmp_path: Path, cell: str) -> NotebookReport:
    cells = [SETUP, SOFTMAX, CHECKS["0.1"], f"# Exercise 0.2\n{cell}", CHECKS["0.2"], MEAN, CHECKS["0.3"]]
    return grade(write_notebook(tmp_path / "x.ipynb", cells), Limits(cell=8))


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_earns_nothing_and_is_told(tmp_path: Path, trick: str) -> None:
    cell, told = TRICKS[trick]
    graded = tried(tmp_path, cell)
    assert graded.status == "graded", graded.message
    assert graded.exercises[1].points == 0
    assert graded.exercises[1].status != "passed"
    if told is not None:
        assert any(told in sentence for sentence in graded.tampering), graded.tampering
        assert told in str(graded.as_json()["tampering"])


def test_the_package_s_own_function_is_not_accepted(tmp_path: Path) -> None:
    answer = (
        "# Exercise 3.2\nfrom course_utils.models.attention import scaled_dot_product\n"
        "def attention(q, K, V, *more):\n    return scaled_dot_product(q, K, V)"
    )
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, answer]))
    assert graded.exercises[1].misconception == "calls the reference"
    assert "`course_utils.models.attention.scaled_dot_product`" in graded.exercises[1].message
    assert graded.points == 0


def test_catching_the_refusal_does_not_help(tmp_path: Path) -> None:
    answer = (
        "# Exercise 3.2\nimport sys, importlib\nfrom course_utils.models import attention as module\n"
        "def attention(q, K, V, *more):\n    sys.setprofile(None)\n"
        "    return importlib.reload(module).scaled_dot_product(q, K, V)"
    )
    assert grade(write_notebook(tmp_path / "x.ipynb", [SETUP, answer])).points == 0


def test_an_honest_notebook_is_accused_of_nothing() -> None:
    for path in sorted(PACKAGE.parent.glob("solutions/0[0348]*.ipynb")):
        graded = grade(path)
        assert graded.points == graded.possible
        assert graded.tampering == ()


def test_nothing_in_the_sealed_copy_answers_an_exercise(tmp_path: Path) -> None:
    sealed = sealed_copy(tmp_path)
    assert not (sealed / "course_utils" / "checks").exists()
    text = "\n".join(path.read_text(encoding="utf-8") for path in sealed.rglob("models/*.py"))
    assert "return " not in text
    assert "CourseReferenceCalled" in text


def test_cases_differ_from_notebook_to_notebook_and_not_from_run_to_run(tmp_path: Path) -> None:
    assert seed_for("0.2", "a") != seed_for("0.2", "b")
    exercise = find("0.2")
    assert exercise is not None
    first, second = grade_twice(tmp_path)
    assert first == second


def grade_twice(tmp_path: Path) -> list[tuple[object, ...]]:
    path = write_notebook(tmp_path / "x.ipynb", [SETUP, SOFTMAX, OUTER.replace("b[None, :]", "b[None, :] + 1")])
    return [grade(path).exercises for _ in range(2)]


def test_a_kernel_started_anew_is_as_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warm.OFF, "1")
    graded = tried(tmp_path, f"{WRONG}\nopen({str(PACKAGE / 'checks/lesson00.py')!r}).read()")
    assert [e.status for e in graded.exercises] == ["wrong"] * 3
    assert any("reads" in sentence for sentence in graded.tampering)
    assert [e.status for e in tried(tmp_path, OUTER.partition("\n")[2]).exercises] == ["passed"] * 3


def test_commands_are_read_too() -> None:
    assert suspicions([Cell("!cat solutions/00_start_here.ipynb", 1)])
    assert suspicions([Cell("%%bash\nls", 1), Cell("!pip install einops", 2), Cell("x = (", 3)]) == []


def test_what_is_guarded_is_there() -> None:
    assert str(PACKAGE) in sandbox.guarded()
