"""Every explorer draws another picture when one of its controls moves."""

from collections.abc import Callable

import ipywidgets as ipw
import pytest

from course_utils import translation, widgets
from course_utils.widgets.explorer import Explorer

EXPLORERS: dict[str, Callable[[], Explorer]] = {
    "scale": widgets.scale_explorer,
    "masks": lambda: widgets.mask_explorer(["<bos>", "삼", "<pad>"], [True, True, False]),
    "positions": widgets.positions_explorer,
    "beam": lambda: widgets.beam_explorer(translation.Translator.load(), "A dog runs."),
    "memory": widgets.memory_explorer,
    "frequency": widgets.frequency_explorer,
}


def moved(control: ipw.Widget) -> object:
    """Another value that the control can take, or None where there is only one."""
    if isinstance(control, ipw.ToggleButton):
        return not control.value
    if isinstance(control, (ipw.Dropdown, ipw.SelectionSlider)):
        others = [value for _, value in control._options_full if value != control.value]
        return others[0] if others else None
    if isinstance(control, ipw.Text):
        return "Two cats sleep."
    return control.max if control.value != control.max else control.min


@pytest.mark.parametrize("name", EXPLORERS)
def test_moving_any_control_changes_the_picture(name: str) -> None:
    explorer = EXPLORERS[name]()
    assert explorer.controls
    for label, control in explorer.controls.items():
        before, value = explorer.image.value, moved(control)
        if value is None:
            continue
        control.value = value
        assert explorer.image.value != before, label


def test_a_mask_is_set_by_presets_and_by_clicks() -> None:
    explorer = widgets.mask_explorer(["<bos>", "삼", "<pad>"], [True, True, False])

    def cells() -> list[bool]:
        return [button.value for button in explorer.controls.values()]

    assert cells() == [True, False, False, True, True, False, True, True, False]
    explorer.menu.value = "nothing"
    assert cells() == [False] * 9
    explorer.controls["cell_1_2"].value = True
    assert explorer.menu.value == "my own"
    assert explorer.controls["cell_1_2"].description == "✓"
    explorer.menu.value = "causal"
    assert cells() == [True, False, False, True, True, False, True, True, True]


def test_an_empty_sentence_is_no_error() -> None:
    explorer = widgets.beam_explorer(translation.Translator.load(), "A dog runs.")
    explorer.controls["sentence"].value = "  "
    assert explorer.image.value
