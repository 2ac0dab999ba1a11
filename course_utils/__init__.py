"""The attention workbook's helper package: references, data, training, figures and the grader.

Importing it is cheap; torch and matplotlib are imported by the modules that need them.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["check"]


def __getattr__(name: str) -> Any:
    if name == "check":
        from course_utils.grading.notebook import check

        return check
    raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
