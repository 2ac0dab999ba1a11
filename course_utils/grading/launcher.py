"""Starts the kernel that runs a submission: in a folder of its own, and with limits where the system has them.

Windows has no such limits: there an answer can take as much memory as the machine has.
"""

from __future__ import annotations

import os
import sys

MEMORY = 8 * 2**30  # bytes of address space; importing torch alone asks for 1.5 GB


def main() -> None:
    """``python -m course_utils.grading.launcher FOLDER`` and then ipykernel's own arguments."""
    os.chdir(sys.argv.pop(1))
    set_limits()
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance()


def set_limits() -> None:
    """A memory bomb becomes a MemoryError in the cell that made it, and a crash leaves no core file."""
    try:
        import resource
    except ImportError:
        return
    for limit, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0)):
        _soft, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):  # macOS knows RLIMIT_AS and refuses it
            continue


if __name__ == "__main__":
    main()
