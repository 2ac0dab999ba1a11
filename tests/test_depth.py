"""Lesson 06: the stack, its profile, and its figures."""

import warnings

import pytest
import torch

from course_utils import plots, widgets
from course_utils.models.depth import Stack, depth_profile


def test_the_profile_starts_at_the_output_with_norm_one_and_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    spread, gradient = depth_profile(5, True, "pre")
    assert len(spread) == len(gradient) == 6
    assert gradient[-1] == pytest.approx(1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("norm", ["none", "pre"])
def test_the_path_alone_is_the_identity_without_a_norm_on_it(norm: str) -> None:
    x = torch.randn(3, 64, requires_grad=True)
    (gradient,) = torch.autograd.grad(Stack(4, True, norm)(x, path_only=True).sum(), x)
    torch.testing.assert_close(gradient, torch.ones_like(x))


def test_the_figures_draw_without_a_missing_glyph() -> None:
    losses = {"a": [3.0, 2.0, 0.05], "b": [3.0, 2.5, 0.02]}
    figures = [
        plots.residual_picture(),
        plots.norm_paths_picture(),
        plots.averaged_numbers_picture(),
        plots.layer_lines({"a": [1e-17, 1e-3, 1.0], "b": [0.0, 2.0, 1.0]}, "gradient norm"),
        plots.loss_panels({"6 layers": losses, "12 layers": losses}, smooth=1),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        assert all(widgets.png(figure).startswith(b"\x89PNG") for figure in figures)


def test_the_explorer_redraws_for_every_setting() -> None:
    explorer = widgets.depth_explorer()
    pictures = {explorer.image.value}
    for control, value in (("residual", False), ("norm", "post"), ("norm", "pre"), ("depth", 1), ("depth", 64)):
        explorer.controls[control].value = value
        pictures.add(explorer.image.value)
    assert len(pictures) == 6
