"""The course's figures. Each function takes arrays and labels, and returns a matplotlib Figure.

Importing this package sets the course's style for every figure made from then on.
"""

from course_utils.plots.beam import hypothesis_bars
from course_utils.plots.continual import memory_weights, trade_off, two_tasks_over_time, update_times
from course_utils.plots.curves import accuracy_by_length, loss_curves
from course_utils.plots.depth import (
    averaged_numbers_picture,
    draw_layer_lines,
    layer_lines,
    loss_panels,
    norm_paths_picture,
    residual_picture,
)
from course_utils.plots.drawings import draw_table, seq2seq_picture
from course_utils.plots.heads import head_maps, multi_head_picture, reach_picture, split_picture
from course_utils.plots.look_up import look_up_picture, paths_picture
from course_utils.plots.maps import attention_map, draw_bars, draw_map, weight_bars
from course_utils.plots.marks import misconception_bars
from course_utils.plots.masks import draw_mask, influence_maps, mask_panels, masked_weights
from course_utils.plots.measurements import draw_lines, measured_lines
from course_utils.plots.positions import distance_panels, draw_hand, draw_position_map, hands_picture, position_map
from course_utils.plots.style import COLOURS, FAINT, INK, MARKERS, korean_font, new_figure, use_style
from course_utils.plots.transformer import layer_maps, transformer_picture

__all__ = [
    "COLOURS",
    "FAINT",
    "INK",
    "MARKERS",
    "accuracy_by_length",
    "attention_map",
    "averaged_numbers_picture",
    "distance_panels",
    "draw_bars",
    "draw_hand",
    "draw_layer_lines",
    "draw_lines",
    "draw_map",
    "draw_mask",
    "draw_position_map",
    "draw_table",
    "hands_picture",
    "head_maps",
    "hypothesis_bars",
    "influence_maps",
    "korean_font",
    "layer_lines",
    "layer_maps",
    "look_up_picture",
    "loss_curves",
    "loss_panels",
    "mask_panels",
    "masked_weights",
    "measured_lines",
    "memory_weights",
    "misconception_bars",
    "multi_head_picture",
    "new_figure",
    "norm_paths_picture",
    "paths_picture",
    "position_map",
    "reach_picture",
    "residual_picture",
    "seq2seq_picture",
    "split_picture",
    "trade_off",
    "transformer_picture",
    "two_tasks_over_time",
    "update_times",
    "use_style",
    "weight_bars",
]

use_style()
