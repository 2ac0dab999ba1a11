"""Figures and explorers: they draw, they hold what they should, and Korean has glyphs."""

import base64
import warnings

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from course_utils import plots, widgets
from course_utils.corpora import english_words, number_task
from course_utils.models.attention import AttentionSeq2Seq
from course_utils.text import Pair
from course_utils.widgets import translation

TASK = number_task(train=200, test=20, digits=3)


def _draw(figure: Figure) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        return widgets.png(figure)


def test_every_figure_draws_without_a_missing_glyph() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 15, 100)
    figures = [
        plots.loss_curves({"a": [3.0, 2.0, 0.05], "b": [3.0, 2.5, 0.02]}, smooth=1),
        plots.accuracy_by_length({"a": (lengths, lengths < 7), "b": (lengths, lengths > 0)}, seen=9),
        plots.attention_map(rng.dirichlet(np.ones(3), 2), ["만", "<eos>"], ["one", "two", "three"], "12,345"),
        plots.weight_bars(np.array([0.7, 0.3]), ["일", "이"], "가중치"),
        plots.seq2seq_picture(["three", "five"], ["삼", "오"]),
        plots.seq2seq_picture(["three", "five"], ["삼", "오"], attention=True),
    ]
    assert all(_draw(figure).startswith(b"\x89PNG") for figure in figures)


def test_the_korean_font_comes_with_a_package() -> None:
    assert plots.korean_font() == "NanumGothic"


def test_accuracy_points_are_the_means_of_their_lengths() -> None:
    figure = plots.accuracy_by_length({"a": ([1, 2, 3, 4], [True, False, True, True])})
    assert figure.axes[0].containers[0].lines[0].get_ydata().tolist() == [0.5, 1.0]


def test_the_map_shows_the_weights_given() -> None:
    alpha = np.array([[0.25, 0.75]])
    figure = plots.attention_map(alpha, ["일"], ["one", "hundred"])
    image = figure.axes[0].images[0]
    assert np.asarray(image.get_array()).tolist() == alpha.tolist()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["one", "hundred"]


def test_an_explorer_redraws_when_a_control_moves() -> None:
    explorer = widgets.softmax_explorer([2.0, 1.0, 0.0])
    before = explorer.image.value
    explorer.controls["factor"].value = 3.0
    assert explorer.image.value != before


def test_an_explorer_shows_a_picture_where_widgets_do_not_run() -> None:
    explorer = widgets.softmax_explorer([2.0, 1.0, 0.0])
    bundle = explorer._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == explorer.image.value
    assert bundle[widgets.WIDGET_VIEW]["model_id"] == explorer.box.model_id


@pytest.fixture
def attentive() -> AttentionSeq2Seq:
    torch.manual_seed(0)
    return AttentionSeq2Seq(len(TASK.english), len(TASK.korean), 8, 8)


def test_next_decodes_one_syllable_with_weights_of_its_own(attentive: AttentionSeq2Seq) -> None:
    explorer = widgets.decoding_explorer(attentive, english_words(305), TASK.english, TASK.korean, longest=6)
    back, forward = explorer.box.children[0].children[:2]
    pictures = [explorer.image.value]
    for _ in range(3):
        forward.click()
        pictures.append(explorer.image.value)
    assert len(set(pictures)) == 4
    assert explorer.controls["step"].value == 4
    back.click()
    assert explorer.image.value == pictures[2]


def test_decoding_steps_are_those_of_the_model(attentive: AttentionSeq2Seq) -> None:
    steps = widgets.DecodingSteps(attentive, english_words(305), TASK.english, TASK.korean)
    steps.advance()
    steps.advance()
    first, second = steps.alphas
    assert first.sum() == pytest.approx(1, abs=1e-6)
    assert not np.allclose(first, second)


def test_the_translation_explorer_marks_errors() -> None:
    figure = translation._translation_picture(Pair(("twelve",), ("십", "이")), ["십", "삼", "삼"])
    marks = [text.get_text() for text in figure.axes[0].texts]
    assert marks.count("×") == 2
