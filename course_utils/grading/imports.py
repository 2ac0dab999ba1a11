"""Imports that would otherwise take seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_url_grammar() -> Iterator[None]:
    """Import nbformat and nbval inside this.

    Both import jsonschema, which compiles a grammar of internationalised URLs (``rfc3987_syntax``) on import: four
    seconds for a check that no notebook needs. Hidden, jsonschema goes without it, as it does when it is not installed.
    """
    name = "rfc3987_syntax"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(name, None)
