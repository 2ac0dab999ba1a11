"""What every explorer shares: controls above a picture that is drawn anew when one of them changes."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as ipw
from matplotlib.figure import Figure

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=figure.dpi)
    return buffer.getvalue()


class Explorer:
    """Controls, and a picture drawn by ``draw(**values of the controls)``.

    Show it as the last value of a cell. ``controls`` maps the names of draw's arguments to ipywidgets; ``buttons`` are
    shown beside them and call their function, which usually sets a control.
    """

    def __init__(
        self, draw: Callable[..., Figure], controls: dict[str, ipw.Widget], buttons: Sequence[ipw.Button] = ()
    ) -> None:
        self._draw = draw
        self.controls = controls
        self.image = ipw.Image(format="png", layout=ipw.Layout(max_width="100%"))
        row = ipw.HBox([*buttons, *controls.values()], layout=ipw.Layout(flex_flow="row wrap"))
        self.box = ipw.VBox([row, self.image])
        for control in controls.values():
            control.observe(lambda _change: self.redraw(), names="value")
        self.redraw()

    def redraw(self) -> None:
        self.image.value = png(self._draw(**{name: control.value for name, control in self.controls.items()}))

    def _repr_mimebundle_(self, **_kwargs: Any) -> dict[str, Any]:
        return {
            WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id},
            "image/png": base64.b64encode(self.image.value).decode("ascii"),
            "text/plain": f"{type(self).__name__} (run the cell to use it)",
        }


def slider(label: str, value: float, low: float, high: float, step: float) -> ipw.FloatSlider:
    return ipw.FloatSlider(
        value=value, min=low, max=high, step=step, description=label, continuous_update=False, readout_format=".2f"
    )


def show_prediction(prediction: object, measured: object) -> None:
    """Print what was expected beside what came: the cell that shows a result shows both."""
    print(f"you predicted: {prediction}")
    print(f"     measured: {f'{measured:.3g}' if isinstance(measured, float) else measured}")
