"""Interactive explorers over ``plots`` and ``models``.

They need nothing that ipywidgets 7.7 lacks. Where widgets do not run (a static page, a preview), a picture stands.
"""

from course_utils.widgets.attention import Attention, AttentionExplorer, attention_explorer
from course_utils.widgets.beam import beam_explorer
from course_utils.widgets.continual import frequency_explorer, memory_explorer
from course_utils.widgets.depth import depth_explorer
from course_utils.widgets.explorer import WIDGET_VIEW, Explorer, png, show_prediction, slider
from course_utils.widgets.heads import decode_with_heads
from course_utils.widgets.masks import mask_explorer
from course_utils.widgets.positions import positions_explorer
from course_utils.widgets.scale import scale_explorer
from course_utils.widgets.softmax import softmax_explorer
from course_utils.widgets.translation import DecodingSteps, decoding_explorer, translation_explorer

__all__ = [
    "WIDGET_VIEW",
    "Attention",
    "AttentionExplorer",
    "DecodingSteps",
    "Explorer",
    "attention_explorer",
    "beam_explorer",
    "decode_with_heads",
    "decoding_explorer",
    "depth_explorer",
    "frequency_explorer",
    "mask_explorer",
    "memory_explorer",
    "png",
    "positions_explorer",
    "scale_explorer",
    "show_prediction",
    "slider",
    "softmax_explorer",
    "translation_explorer",
]
