"""The attention explorer: what it takes, what stands where widgets do not run, and its page in a browser."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets

from course_utils import widgets
from course_utils.widgets import Attention, AttentionExplorer, attention_explorer

WIDGETS = Path(widgets.__file__).parent
WORDS = ["the", "dog", "bites", "the", "<b>man</b>", ""]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.4), size=shape[:-1])


def three_kinds() -> AttentionExplorer:
    source, target = WORDS, ["<bos>", "개가", "남자를", "문다"]
    causal = np.tril(np.ones((4, 4)))
    return attention_explorer(
        Attention("encoder self-attention", weights(2, 3, 6, 6), source),
        Attention("decoder self-attention", causal / causal.sum(axis=-1, keepdims=True), target),
        Attention("cross-attention", weights(2, 3, 4, 6), target, source),
    )


# ---- What it takes


@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("kind", ["array", "float64", "float16", "bfloat16", "with a gradient", "lists"])
def test_every_form_of_weights_becomes_layers_heads_queries_keys(shape: tuple[int, ...], kind: str) -> None:
    given: Any = weights(*shape)
    if kind == "lists":
        given = given.tolist()
    elif kind == "with a gradient":
        given = torch.tensor(given, requires_grad=True)
    elif kind != "array":
        given = torch.tensor(given).to(getattr(torch, kind))
    explorer = attention_explorer(given, list("abcd"), list("uvwxyz"))
    kept = explorer.attentions[0].weights
    assert kept.shape == (1,) * (4 - len(shape)) + shape
    assert np.allclose(kept.reshape(shape), weights(*shape), atol=5e-3)


def test_what_goes_to_the_page_is_float32_with_four_digits() -> None:
    explorer = three_kinds()
    state = explorer.get_state()
    sent = np.frombuffer(state["_weights"], "<f4")
    assert np.allclose(sent, np.concatenate([each.weights.ravel() for each in explorer.attentions]), atol=6e-5)
    assert np.allclose(sent * 1e4, np.round(sent * 1e4), atol=1e-2)
    assert [(each["layers"], each["heads"]) for each in state["_spec"]] == [(2, 3), (1, 1), (2, 3)]
    assert state["_spec"][0]["keys"] == ["the", "dog", "bites", "the", "<b>man</b>", "(empty)"]


def test_the_array_given_may_change_afterwards() -> None:
    given = np.eye(2)
    attention = Attention("self", given, ["a", "b"])
    given[:] = 0.5
    assert np.array_equal(attention.weights[0, 0], np.eye(2))


HALF = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0.5, 0.5], ["a", "b"]), r"have 1 axes; give \(T, S\), \(h, T, S\) or \(layers, h, T, S\)"),
        ((np.ones((1, 1, 1, 1, 1)), ["a"]), r"have 5 axes.*weights\[0\]"),
        ((np.ones((0, 2)), []), "hold nothing"),
        (([["x"]], ["a"]), "no array of numbers"),
        (([[0.5], [0.5, 0.5]], ["a", "b"]), "no array of numbers"),
        ((HALF, ["a", "b", "c"]), "has 3 queries, but the last but one axis of its weights has 2 places"),
        ((HALF, ["a", "b"], ["a"]), "has 1 keys.* but the last axis of its weights has 2 places"),
        ((np.ones((2, 1)), ["a", "b"]), r"has 2 keys \(without keys, the queries are taken for them\)"),
        ((HALF, "ab"), r"queries of 'attention' are one string.*sentence\.split\(\)"),
        (([[2.0, -1.0], [0.5, 0.5]], ["a", "b"]), "go down to -1.*Are they scores"),
        (([[np.nan, np.nan], [0.5, 0.5]], ["a", "b"]), "hold NaN.*masked as a whole"),
        (([[1.0, 0.0], [0.7, 0.7]], ["a", "b"]), r"weights of 'b' \(query 1 in layer 0, head 0.*sum to 1\.4.*softmax"),
        (([[1.0, 0.6], [0.0, 0.4]], ["a", "b"]), "sum to 1.6.*swap the last two axes"),
        ((), "Give weights"),
        ((HALF,), "Give weights"),
        ((Attention("x", HALF, ["a", "b"]), HALF), "not both"),
        ((Attention("x", HALF, ["a", "b"]), Attention("x", HALF, ["a", "b"])), "Two attentions are called 'x'"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){said}") as error:
        attention_explorer(*arguments)
    assert str(error.value).endswith(".")


def test_a_row_that_is_masked_as_a_whole_is_no_error() -> None:
    explorer = attention_explorer([[0.0, 0.0], [0.0, 1.0]], ["a", "b"])
    assert explorer.in_words(0) == "“a” looks at nothing: all keys are hidden from it."


# ---- What is selected


def test_what_is_shown_follows_the_traits() -> None:
    explorer = three_kinds()
    encoder = explorer.attentions[0].weights
    assert np.allclose(explorer.shown, encoder[0].mean(axis=0))
    assert explorer.title == "encoder self-attention, layer 1, mean of 3 heads"
    explorer.layer, explorer.head, explorer.query = 1, 2, 5
    assert np.array_equal(explorer.shown, encoder[1, 2])
    assert explorer.title == "encoder self-attention, layer 2, head 3"
    explorer.attention = 1  # one layer, one head, four tokens
    assert (explorer.layer, explorer.head, explorer.query) == (0, 0, -1)
    assert explorer.title == "decoder self-attention"


@pytest.mark.parametrize(("name", "value"), [("attention", 3), ("layer", 2), ("layer", -1), ("head", 3), ("query", -2)])
def test_what_is_not_there_cannot_be_selected(name: str, value: int) -> None:
    explorer = three_kinds()
    before = getattr(explorer, name)
    with pytest.raises(traitlets.TraitError, match=rf"{name} is {value}; set it to a number from"):
        setattr(explorer, name, value)
    assert getattr(explorer, name) == before


def test_the_page_may_change_several_at_once() -> None:
    explorer = three_kinds()
    explorer.set_state({"attention": 1})
    explorer.set_state({"attention": 2, "layer": 1, "head": 2, "query": 3})
    assert (explorer.attention, explorer.layer, explorer.head, explorer.query) == (2, 1, 2, 3)


# ---- Where widgets do not run


def test_the_bundle_holds_the_view_a_picture_and_words() -> None:
    explorer = three_kinds()
    data, metadata = explorer._repr_mimebundle_(include=None, exclude=None)
    assert data[widgets.WIDGET_VIEW]["model_id"] == explorer.model_id
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    lines = data["text/plain"].splitlines()
    assert lines[0] == "AttentionExplorer (encoder self-attention, layer 1, mean of 3 heads):"
    assert lines[1:] == [explorer.in_words(query) for query in range(6)]
    assert metadata["image/png"]["alt"] == data["text/plain"]


def test_the_picture_follows_the_selection() -> None:
    explorer = three_kinds()
    pictures = [explorer._repr_mimebundle_()[0]["image/png"]]
    for name, value in [("head", 1), ("layer", 1), ("attention", 1)]:
        setattr(explorer, name, value)
        pictures.append(explorer._repr_mimebundle_()[0]["image/png"])
    assert len(set(pictures)) == 4


def test_a_token_is_never_read_as_mathematics() -> None:
    explorer = attention_explorer(np.eye(3), [r"$\frac$", "$", " "], name=r"$\x$")
    assert explorer._repr_mimebundle_()[0]["image/png"]


def test_words_tell_repeated_tokens_apart_and_sum_up_the_rest() -> None:
    row = [0.4, 0.2, 0.15, 0.1, 0.06, 0.05, 0.036, 0.004]
    explorer = attention_explorer([row], ["the"], ["the", "dog", "the", "a", "b", "c", "d", "e"])
    assert explorer.in_words(0) == (
        "“the” looks at “the” (no. 1, 40%), “dog” (20%), “the” (no. 3, 15%), “a” (10%), “b” (6%), "
        "and 2 more (9% together)."
    )


def test_colab_is_told_once_that_a_widget_of_another_maker_comes() -> None:
    code = """
import sys, types
calls = []
output = types.ModuleType("google.colab.output")
output.enable_custom_widget_manager = lambda: calls.append(1)
output._widgets = types.SimpleNamespace(_installed_url=None)
colab = types.ModuleType("google.colab")
colab.output = output
sys.modules |= {"google.colab": colab, "google.colab.output": output}
from course_utils.widgets import attention_explorer
assert not calls
explorers = [attention_explorer([[1.0]], ["a"]) for _ in range(2)]
assert calls == [1], calls
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=WIDGETS.parent.parent)


# ---- The page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

# What anywidget does with the module and with the state, on a page of its own.
SHOW = """async ([esm, css, state]) => {
  document.head.appendChild(document.createElement("style")).textContent = css;
  const bytes = Uint8Array.from(atob(state._weights), (each) => each.charCodeAt(0));
  const values = { ...state, _weights: new DataView(bytes.buffer) };
  const listeners = {};
  window.saved = [];
  window.model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes: () => window.saved.push([values.attention, values.layer, values.head, values.query]),
    on: (event, call) => { (listeners[event] ??= []).push(call); },
    off: (event, call) => { listeners[event] = listeners[event].filter((each) => each !== call); },
    change: (name, value) => { values[name] = value; for (const call of listeners[`change:${name}`]) call(); },
    listening: () => Object.values(listeners).flat().length,
  };
  const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  const module = await import(url);
  const el = document.body.appendChild(document.createElement("div"));
  window.cleanup = await module.default.render({ model: window.model, el });
}"""


@pytest.fixture
def page() -> Iterator[Any]:
    """An empty page; what its console says as an error, and what it asks of the network, fails the test."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: neither chromium nor google-chrome is on the path")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 900, "height": 700})
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith("blob:") else wrong.append(request.url))
        page.set_content("<!doctype html><html lang='en'><head></head><body></body></html>")
        yield page
        browser.close()
    assert wrong == []


def show(page: Any, explorer: AttentionExplorer) -> None:
    state = {name: value for name, value in explorer.get_state().items() if name != "layout"}
    state["_weights"] = base64.b64encode(state["_weights"]).decode("ascii")
    files = [(WIDGETS / f"attention.{ending}").read_text(encoding="utf-8") for ending in ("js", "css")]
    page.evaluate(SHOW, [*files, {name: state[name] for name in state if name not in ("_esm", "_css")}])


@pytest.mark.slow
def test_the_page_says_and_draws_what_python_knows(page: Any) -> None:
    explorer = three_kinds()
    show(page, explorer)
    tokens, words, paths = page.locator("button"), page.get_by_role("status"), page.locator("path")
    numbers = page.locator(".course-attention-weight")
    selects = {name: page.get_by_label(name, exact=True) for name in ("attention", "layer", "head")}
    assert words.get_attribute("aria-live") == "polite"

    # Every line at first; HTML in a token is text, and an empty token is a word.
    assert paths.count() > 6
    assert "Point at a token" in words.inner_text()
    assert tokens.all_inner_texts() == ["the", "dog", "bites", "the", "<b>man</b>", "(empty)"]
    assert page.locator("b").count() == 0
    # JupyterLab looks for this on the element that has the focus; without it, arrows would move to another cell.
    assert (
        page.locator("button:not([data-lm-suppress-shortcuts]), select:not([data-lm-suppress-shortcuts])").count() == 0
    )

    # The pointer: one token's lines, a number at every key, and words; then all lines again.
    tokens.nth(2).hover()
    assert paths.count() == (explorer.shown[2] > 0.001).sum()
    assert words.inner_text() == explorer.in_words(2)
    shown = numbers.all_inner_texts()
    assert len(shown) == 6
    assert shown[int(explorer.shown[2].argmax())] == f"{100 * explorer.shown[2].max():.0f}%"
    page.mouse.move(0, 0)
    assert numbers.all_inner_texts() == [""] * 6

    # The keys: one stop for Tab, arrows that stay inside the line, Enter pins and Escape lets go.
    tokens.first.focus()
    assert tokens.evaluate_all("all => all.map((each) => each.tabIndex)") == [0, -1, -1, -1, -1, -1]
    for key, query in [
        ("ArrowRight", 1),
        ("ArrowLeft", 0),
        ("ArrowLeft", 0),
        ("End", 5),
        ("ArrowRight", 5),
        ("Home", 0),
    ]:
        page.keyboard.press(key)
        assert tokens.nth(query).evaluate("each => each === document.activeElement && each.tabIndex === 0")
        assert words.inner_text() == explorer.in_words(query)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("saved.at(-1)") == [0, 0, -1, 1]
    assert tokens.nth(1).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    assert words.inner_text() == explorer.in_words(1)  # it is pinned
    tokens.nth(1).focus()
    page.keyboard.press("Escape")
    assert page.evaluate("saved.at(-1)") == [0, 0, -1, -1]
    assert "Point at a token" in words.inner_text()

    # A click pins too, and the selects change the layer, the head and the attention.
    tokens.nth(4).click()
    page.mouse.move(0, 0)
    selects["layer"].select_option("layer 2")
    selects["head"].select_option("head 3")
    explorer.layer, explorer.head = 1, 2
    assert page.evaluate("saved.at(-1)") == [0, 1, 2, 4]
    assert words.inner_text() == explorer.in_words(4)
    selects["attention"].select_option("decoder self-attention")
    explorer.attention = 1
    assert page.evaluate("saved.at(-1)") == [1, 0, 0, -1]
    assert [select.is_visible() for select in selects.values()] == [True, False, False]
    tokens.nth(3).hover()
    assert (
        words.inner_text()
        == explorer.in_words(3)
        == ("“문다” looks at “<bos>” (25%), “개가” (25%), “남자를” (25%), “문다” (25%).")
    )
    page.mouse.move(0, 0)

    # From Python, one trait after another, as they arrive, while a token that goes has the focus.
    tokens.first.focus()
    for name, value in [("attention", 2), ("layer", 1), ("head", 0), ("query", 2)]:
        page.evaluate("([name, value]) => model.change(name, value)", [name, value])
        setattr(explorer, name, value)
    assert words.inner_text() == explorer.in_words(2)
    assert selects["head"].input_value() == "0"
    page.evaluate("cleanup()")
    assert page.evaluate("model.listening()") == 0


@pytest.mark.slow
def test_a_long_sentence_scrolls_inside_the_card(page: Any) -> None:
    show(page, attention_explorer(weights(40, 40), [f"token{i}" for i in range(40)]))
    box = page.locator(".course-attention-scroll")
    assert box.evaluate("each => each.scrollWidth > 2 * each.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.locator("button").first.focus()
    page.keyboard.press("End")
    assert box.evaluate("each => each.scrollLeft > 0")
    places = "all => all.map((each) => each.getBoundingClientRect().left)"
    tops, bottoms = (page.locator(each).evaluate_all(places) for each in ("button", ".course-attention-key"))
    assert tops == pytest.approx(bottoms)  # the same sentence, one token above the other


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_ink_and_paper_stand_apart_in_both_themes(page: Any, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    show(page, three_kinds())
    colours = page.locator(".course-attention").evaluate(
        "each => [getComputedStyle(each).color, getComputedStyle(each).backgroundColor]"
    )
    channels = [[int(part) / 255 for part in colour[4:-1].split(",")] for colour in colours]
    linear = np.where((c := np.array(channels)) <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(linear @ [0.2126, 0.7152, 0.0722])
    assert (light + 0.05) / (dark + 0.05) >= 7
    assert (linear[1].mean() < 0.5) == (theme == "dark")
