"""The attention workbook's helper package: references, data, training, figures and the grader.

Importing it is cheap; torch and matplotlib are imported by the modules that need them.
"""

from typing import Any

__all__ = ["check", "setup"]


def __getattr__(name: str) -> Any:
    if name == "check":
        from course_utils.grading.notebook import check

        return check
    if name == "setup":
        from course_utils.colab import setup

        return setup
    if name == "__version__":
        from importlib.metadata import version

        return version("course-utils")
    raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
