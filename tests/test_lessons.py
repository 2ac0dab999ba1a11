"""The lessons as files: what their cells define equals the package, and every one keeps the course's form."""

import ast
import contextlib
import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import numpy as np
import pytest
import torch

from course_utils import colab
from course_utils.models import attention, depth, masks, multi_head, normalization, rnn, transformer
from course_utils.text import PAD

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ALL = [path for folder in ("notebooks", "exercises", "solutions") for path in sorted((ROOT / folder).glob("*.ipynb"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]

lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
every = pytest.mark.parametrize("path", ALL, ids=lambda p: f"{p.parent.name}/{p.stem}")


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def text(path: Path) -> str:
    return "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


# --- what a lesson's cells define equals the package -----------------------------------------------------------------


def definitions(path: Path) -> dict[str, Any]:
    """The lesson's imports, functions and classes, executed without the rest of it."""
    namespace: dict[str, Any] = {}
    for cell in code_cells(path):
        source = re.sub(r"^(\s*)%.*$", r"\1pass", cell.source, flags=re.MULTILINE)
        wanted = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
        body = [node for node in ast.parse(source).body if isinstance(node, wanted)]
        exec(compile(ast.Module(body, type_ignores=[]), str(path), "exec"), namespace)
    return namespace


def same_model(mine: torch.nn.Module, package: torch.nn.Module, *inputs: torch.Tensor) -> None:
    mine.load_state_dict(package.state_dict())
    for a, b in zip(_flat(mine(*inputs)), _flat(package(*inputs)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def _flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def seq2seq_lesson(cells: dict[str, Any]) -> None:
    source, target = torch.tensor([[4, 5, 6], [7, PAD, PAD]]), torch.tensor([[1, 4, 5, 4], [1, 6, 2, PAD]])
    same_model(cells["Encoder"](9, 4, 6), rnn.Encoder(9, 4, 6), source)
    same_model(cells["Decoder"](8, 4, 6), rnn.Decoder(8, 4, 6), target, torch.randn(2, 6))
    mine, package = cells["Seq2Seq"](9, 8, 4, 6), rnn.Seq2Seq(9, 8, 4, 6)
    same_model(mine, package, source, target)
    token = target[:, 1]
    torch.testing.assert_close(mine.step(token, mine.start(source)), package.step(token, package.start(source)))

    cell = rnn.GRUCell(4, 3).double()
    for gate in "zrn":
        torch.nn.init.zeros_(getattr(cell, f"W_{gate}").bias)
        torch.nn.init.zeros_(getattr(cell, f"U_{gate}").bias)
    cells["W"] = {gate: getattr(cell, f"W_{gate}").weight.detach().numpy() for gate in "zrn"}
    cells["U"] = {gate: getattr(cell, f"U_{gate}").weight.detach().numpy() for gate in "zrn"}
    x, h = torch.randn(4, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    np.testing.assert_allclose(cells["gru_step"](x.numpy(), h.numpy()), cell(x[None], h[None])[0].detach(), atol=1e-12)


def bahdanau_lesson(cells: dict[str, Any]) -> None:
    score = attention.AdditiveScore(3, 5, 7).double()
    s, H = torch.randn(1, 3, dtype=torch.float64), torch.randn(1, 4, 5, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True]])
    cells.update(
        W=score.W.weight.detach().numpy(), U=score.U.weight.detach().numpy(), v=score.v.weight[0].detach().numpy()
    )
    e = score(s, H).detach()
    alpha = attention.attention_weights(e, mask)
    np.testing.assert_allclose(cells["score_one"](s[0].numpy(), H[0].numpy()), e[0], atol=1e-12)
    context, weights = cells["attend_one"](s[0].numpy(), H[0].numpy(), mask[0].numpy())
    np.testing.assert_allclose(weights, alpha[0], atol=1e-12)
    np.testing.assert_allclose(context, attention.context_vector(alpha, H)[0], atol=1e-12)


def self_attention_lesson(cells: dict[str, Any]) -> None:
    same_model(cells["SelfAttention"](6, 4), attention.SelfAttention(6, 4), torch.randn(2, 5, 6))


def multi_head_lesson(cells: dict[str, Any]) -> None:
    package = multi_head.MultiHeadAttention(12, h=3, bias=False).double()
    query, memory = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    output, weights = package(query, memory, need_weights=True)
    mine, maps = cells["multi_head_one"](query[1], memory[1], *package.parameters(), h=3)
    torch.testing.assert_close(mine, output[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(maps, weights[1], rtol=0, atol=1e-12)


def positions_lesson(cells: dict[str, Any]) -> None:
    """With relative vectors of zero, the lesson's attention is the package's."""
    package, mine = multi_head.MultiHeadAttention(12, h=3), cells["RelativeAttention"](12, h=3)
    mine.load_state_dict({**package.state_dict(), "a": torch.zeros(9, 4)})
    x, mask = torch.randn(2, 5, 12), torch.rand(5, 5) < 0.7
    mask[:, 0] = True
    for a, b in zip(mine(x, x, mask, need_weights=True), package(x, x, mask, need_weights=True), strict=True):
        torch.testing.assert_close(a, b)


def transformer_lesson(cells: dict[str, Any]) -> None:
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    memory_mask, causal = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None], masks.causal_mask(4)
    same_model(cells["EncoderLayer"](8, 2, 12), transformer.EncoderLayer(8, 2, 12, dropout=0.0), memory, memory_mask)
    package, mine = transformer.DecoderLayer(8, 2, 12, dropout=0.0), cells["DecoderLayer"](8, 2, 12)
    mine.load_state_dict(package.state_dict())
    expected, _ = package(x, package.cross_attention.keys_values(memory), causal, memory_mask)
    torch.testing.assert_close(mine(x, memory, causal, memory_mask), expected)
    source, target = torch.tensor([[4, 5, 6], [7, PAD, PAD]]), torch.tensor([[1, 4, 5, 4], [1, 6, 2, PAD]])
    whole = transformer.Transformer(9, 8, 16, 4, 12, 2, dropout=0.0)
    same_model(cells["Transformer"](9, 8, 16, 4, 12, 2), whole, source, target)


def add_and_norm_lesson(cells: dict[str, Any]) -> None:
    x, norm = torch.randn(3, 64), normalization.LayerNorm(64).double()
    for residual, kind in [(False, "none"), (True, "none"), (False, "post"), (True, "post"), (True, "pre")]:
        same_model(cells["Stack"](3, residual, kind), depth.Stack(3, residual, kind), x)
    torch.nn.init.normal_(norm.gamma)
    torch.nn.init.normal_(norm.beta)
    token, gamma, beta = torch.randn(64).double().numpy(), norm.gamma.detach().numpy(), norm.beta.detach().numpy()
    expected = norm(torch.from_numpy(token)).detach()
    np.testing.assert_allclose(cells["layer_norm_one"](token, gamma, beta), expected, atol=1e-12)


COMPARED: dict[str, tuple[Callable[[dict[str, Any]], None], set[str]]] = {
    "01_seq2seq": (seq2seq_lesson, {"Encoder", "Decoder", "Seq2Seq", "gru_step"}),
    "02_bahdanau_attention": (bahdanau_lesson, {"score_one", "attend_one"}),
    "03_self_attention": (self_attention_lesson, {"SelfAttention"}),
    "04_multi_head": (multi_head_lesson, {"multi_head_one"}),
    "08_transformer": (transformer_lesson, {"EncoderLayer", "DecoderLayer", "Transformer"}),
    "06_add_and_norm": (add_and_norm_lesson, {"Stack", "layer_norm_one"}),
    "07_positional_encoding": (positions_lesson, {"RelativeAttention"}),
}
# Helpers of one lesson's experiment, which the package does not have.
LOCAL = {
    "sigmoid",
    "right_at",
    "train_and_test",
    "share",
    "alignment",
    "wrong_softmax",
    "LookUp",
    "influence",
    "longest_chain",
    "look_up_batch",
    "random_scores",
    "seconds",
    "sharpness",
    "changed_numbers",
    "show_heads",
    "without",
    "outputs_by_word",
    "Tagger",
    "make_embedding",
    "train",
    "show_bets",
    "strings",
    "trained_on_short",
    "right_tokens",
    "sequences",
    "Writer",
    "continued",
    "unmoved",
    "leaky",
    "pair_counts",
    "join",
    "padding_share",
    "trained",
    "grams",
    "write",
    "gradient_at_input",
    "mean_cosine",
    "DeepLookUp",
    "Around",
    "exchange",
    "look",
    "Nothing",
    "WithoutResidual",
    "replace",
    "no_positions",
    "no_residual",
    "no_causal_mask",
    "train_without",
    "steps_down",
}


@lesson
def test_what_the_cells_define_equals_the_package(path: Path) -> None:
    torch.manual_seed(0)
    defined = {
        node.name
        for cell in code_cells(path)
        for node in ast.parse(re.sub(r"^(\s*)%.*$", r"\1pass", cell.source, flags=re.MULTILINE)).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    compare, names = COMPARED.get(path.stem, (None, set()))
    assert defined - LOCAL == names, "a new definition needs a comparison here"
    if compare is not None:
        compare(definitions(path))


# --- the form of every notebook --------------------------------------------------------------------------------------


@every
def test_every_notebook_starts_with_its_badge_and_the_set_up_cell(path: Path) -> None:
    head = read(path).cells[0].source
    where = REPOSITORY.removeprefix("https://github.com/")
    badge = f"https://colab.research.google.com/github/{where}/blob/main/{{}}/{path.name}"
    # A solution's badge opens the exercise: that is what its head becomes.
    folder = "notebooks" if path.parent.name == "notebooks" else "exercises"
    assert badge.format(folder) in head
    needs_gpu = path.parent.name == "notebooks" and path.stem.startswith("09")
    assert code_cells(path)[0].source == colab.set_up_cell(where, PROJECT["version"], gpu=needs_gpu)


@every
def test_kernel_metadata_are_what_jupyterlab_writes_itself(path: Path) -> None:
    kernel = read(path).metadata.kernelspec
    assert (kernel.name, kernel.display_name) == ("python3", "Python 3 (ipykernel)")
    assert "jupytext" not in read(path).metadata


def headings(path: Path) -> set[str]:
    """The names by which JupyterLab and the site find the headings of a notebook."""
    texts = (cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    return {line.lstrip("# ").replace(" ", "-") for text in texts for line in text.splitlines() if line.startswith("#")}


@every
def test_relative_links_lead_somewhere(path: Path) -> None:
    for link, _, anchor in re.findall(r"\]\((?!https?:|#)([^)#]+)(#([^)\s]*))?", text(path)):
        assert (path.parent / link).exists(), link
        if anchor and link.endswith(".ipynb"):
            assert unquote(anchor) in headings(path.parent / link), link


@lesson
def test_each_exercise_links_to_its_section_and_back(path: Path) -> None:
    exercises = ROOT / "exercises" / path.name
    tasks = [c.source for c in read(exercises).cells if c.cell_type == "markdown"]
    for heading, number in re.findall(r"^## (Exercise (\d+\.\d+) .*)$", "\n".join(tasks), re.MULTILINE):
        [task] = [source for source in tasks if f"## {heading}\n" in source]
        assert "From the lesson: [" in task.partition(heading)[2]
        assert f"(../notebooks/{path.name}#" in task.partition(heading)[2]
        assert f"[{number}](../exercises/{path.name}#Exercise-{number}-" in text(path)


@pytest.mark.parametrize(
    "path", [p for p in ALL if p.parent.name != "exercises"], ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_executed_in_order_without_errors_or_warnings(path: Path) -> None:
    cells = [cell for cell in code_cells(path) if cell.source]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not [o for o in cell.outputs if o.output_type == "error" or o.get("name") == "stderr"], cell.source
    stored = json.dumps([cell.outputs for cell in cells])
    assert str(ROOT) not in stored
    assert "/site-packages/" not in stored
    assert "widget-view+json" not in stored, "an unlive widget shows an error on opening; run `course build`"


@every
def test_what_the_cells_take_from_the_package_is_there(path: Path) -> None:
    """A cell whose output nobody compares would otherwise call what was renamed."""
    tree = ast.parse(
        "\n".join(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell.source, flags=re.M) for cell in code_cells(path))
    )
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("course_utils"):
            for alias in node.names:
                with contextlib.suppress(ModuleNotFoundError):
                    modules[alias.asname or alias.name] = importlib.import_module(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


@lesson
def test_code_cells_are_short(path: Path) -> None:
    for cell in code_cells(path):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 20, cell.source
        assert max(map(len, lines)) <= 110, cell.source


@lesson
def test_code_is_led_in_by_words(path: Path) -> None:
    kinds = "".join("c" if cell.cell_type == "code" else "m" for cell in read(path).cells)
    assert "ccc" not in kinds, "three code cells in a row: say what the third is for"


@lesson
def test_every_lesson_has_its_parts(path: Path) -> None:
    words, code = text(path), "\n".join(cell.source for cell in code_cells(path))
    assert words.count("**Predict.**") == code.count("prediction = ") >= 2
    assert "_explorer(" in code
    assert re.search(r"\| English \| 한국어 \|", words)
    assert len(re.findall(r"[가-힣]{2,}", words)) >= 5
    assert f"../exercises/{path.name}" in words
    if path.stem[:2] != "00":
        assert words.count("<details>") >= 3
        assert "## What it cannot do" in words
