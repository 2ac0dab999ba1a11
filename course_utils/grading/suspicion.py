"""What the instructor is told about a submission's code: attempts to earn points without answering.

None of them earns any. This only says that somebody tried, so it names what is hardly ever there for another reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from course_utils.grading.rebuild import Cell

FAKED = re.compile(r"passed, \d+ of \d+ point")
PLACES = re.compile(r"\bsolutions[/\\]\d\d_|(?<![\w-])record\.json|course_utils[./\\](checks|grading)")
OWNERS = frozenset(("torch", "np", "numpy", "F", "builtins", "__builtins__", "course_utils", "IPython"))
SETTINGS = ("torch.backends.", "torch.autograd.", "np.random.seed")  # switches that are there to be set
CALLS = {
    "atexit.register": "leaves code to be run at the end",
    "sys.addaudithook": "installs an audit hook",
    "sys.setprofile": "installs a profiler",
    "sys.settrace": "installs a tracer",
    "gc.get_objects": "searches the memory of the process",
    "gc.get_referrers": "searches the memory of the process",
    "sys._getframe": "looks into its callers",
    "inspect.stack": "looks into its callers",
    "inspect.currentframe": "looks into its callers",
}
HOOKS = frozenset(("sys.meta_path", "sys.path_hooks"))
COMPARISONS = frozenset(("__eq__", "__ne__", "__torch_function__", "__array_function__"))


def suspicions(cells: Iterable[Cell]) -> list[str]:
    """One sentence for each kind of attempt in each cell."""
    found = []
    for cell in cells:
        if not cell.is_check:
            found.extend(f"{cell.name} {what}." for what in dict.fromkeys(_attempts(cell.source)))
    return found


def told(reports: Iterable[dict[str, str]]) -> list[str]:
    """The same for what ``inside.watch`` reported while the notebook ran."""
    sentences = (f"While it ran, the notebook {report['what']} {report['detail']}".rstrip() for report in reports)
    return [f"{sentence}." for sentence in dict.fromkeys(sentences)]


def _attempts(source: str) -> Iterator[str]:
    lines = (line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])
    if any(PLACES.search(line) for line in source.splitlines() if line.lstrip().startswith(("%", "!"))):
        yield "gives a command that names the grader's or the solutions' files"
    methods = {part for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in node.body}
    for node in ast.walk(tree):
        if node in methods and getattr(node, "name", "") in ("check", "print"):
            continue
        yield from _of_node(node)


def _of_node(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if FAKED.search(node.value):
            yield "writes the line of a passed check itself"
        if PLACES.search(node.value):
            yield "names the grader's or the solutions' files"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        if any(PLACES.search(f"{name}.") for name in names):
            yield "imports the grader or its exercises"
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield from _of_definition(node)
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _of_target(target)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _of_definition(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    if node.name in ("check", "print"):
        yield f"redefines `{node.name}`"
    if isinstance(node, ast.ClassDef):
        if any(_dotted(base) in ("torch.Tensor", "Tensor", "np.ndarray", "numpy.ndarray") for base in node.bases):
            yield f"makes its own kind of tensor, `{node.name}`"
    elif node.name in COMPARISONS and all(isinstance(value, ast.Constant) for value in _returned(node)):
        yield f"defines a `{node.name}` that always says the same"


def _returned(function: ast.FunctionDef) -> list[ast.expr | None]:
    return [part.value for part in ast.walk(function) if isinstance(part, ast.Return)] or [None]


def _of_target(target: ast.expr) -> Iterator[str]:
    name = _dotted(target)
    if name == "check":
        yield f"redefines `{name}`"
    elif name in HOOKS:
        yield "installs an import hook"
    elif "." in name and name.split(".")[0] in OWNERS and not name.startswith(SETTINGS):
        yield f"replaces `{name}`"


def _of_call(node: ast.Call) -> Iterator[str]:
    name = _dotted(node.func)
    if name in CALLS:
        yield CALLS[name]
    elif name.rpartition(".")[0] in HOOKS:
        yield "installs an import hook"
    elif name == "setattr" and node.args and _dotted(node.args[0]).split(".")[0] in OWNERS:
        yield f"replaces an attribute of `{_dotted(node.args[0])}`"


def _dotted(node: ast.AST) -> str:
    """ "torch.nn" for the expression torch.nn; empty for anything that is not such a path."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
