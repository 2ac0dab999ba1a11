"""Becomes the kernel that runs a submission: in a folder of its own, watched, and with limits where there are any.

Windows has no such limits: there an answer can take as much memory as the machine has.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MEMORY = 8 * 2**30  # bytes of address space; importing torch alone asks for 1.5 GB
LARGEST_FILE = 2**30  # bytes
PROCESSES = 256  # beyond those that the user has already; the system does not count root's


def main() -> None:
    """Called with one argument of ours, the JSON of ``become_kernel``'s settings, and then ipykernel's own."""
    become_kernel(json.loads(sys.argv.pop(1)), sys.argv[1:])


def become_kernel(settings: dict[str, Any], argv: list[str]) -> None:
    """Does not return. ``settings``: folder, port, word and guarded, see ``watch.install``."""
    os.chdir(settings["folder"])
    set_limits()
    from ipykernel.kernelapp import IPKernelApp

    from course_utils.grading.inside import watch

    watch.install(settings["port"], settings["word"], settings["guarded"])
    IPKernelApp.launch_instance(argv=argv)


def set_limits() -> None:
    """A memory bomb becomes a MemoryError in the cell that made it, and a crash leaves no core file."""
    try:
        import resource
    except ImportError:
        return
    limits = [(resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, LARGEST_FILE)]
    if os.getuid() != 0:
        limits.append((resource.RLIMIT_NPROC, _own_threads() + PROCESSES))
    for limit, most in limits:
        _soft, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):  # macOS knows RLIMIT_AS and refuses it
            continue


def _own_threads() -> int:
    """What the system counts against the limit already: the threads of all processes of this user."""
    import psutil  # comes with ipykernel

    own = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"] and process.info["uids"].real == os.getuid():
            own += process.info["num_threads"] or 0
    return own
