#!/usr/bin/env python3
"""The attention workbook, from one command:

  python3 course.py lab          open the lessons in JupyterLab
  python3 course.py test         run every test
  python3 course.py grade FILE   score a notebook of exercises
  python3 course.py progress     show what has been passed so far

The first run makes an environment in the folder .venv, which takes a few minutes and a network connection.
After that it starts at once. Every other command of `course` works the same way; `--help` lists them all
once the environment is there. To start afresh, delete the folder .venv.
On Windows, write `py` instead of `python3`.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 (this file is what an older Python is pointed at)
    sys.exit(
        "This course needs Python 3.10 or newer, and this is Python {}.{}. Install a newer one from python.org "
        "or your system's packages, then run this again with it.".format(*sys.version_info[:2])
    )

import errno
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any

WINDOWS = os.name == "nt"
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if WINDOWS else "bin")
PYTHON = BIN / ("python.exe" if WINDOWS else "python")
COURSE = BIN / ("course.exe" if WINDOWS else "course")
COMMAND = [str(COURSE)] if WINDOWS else [str(PYTHON), str(COURSE)]
STAMP, LOG, LOCK = VENV / "setup.json", VENV / "setup.log", VENV / "setup.lock"
UNFINISHED = {"unfinished": True}  # the stamp of an environment whose files are just being changed

# What a line of a failed step's output means, in words that help; the first that fits is shown.
ADVICE = (
    ("No space left|not enough space on the disk", "The disk is full. The environment needs up to 8 GB."),
    (
        "NewConnectionError|name resolution|getaddrinfo failed|ConnectTimeout|ReadTimeout|ProxyError|SSLError",
        "The package index could not be reached. Check the network connection, and the proxy if there is one.",
    ),
    (
        "No matching distribution found",
        "A package has no version for this Python on this computer. The course needs a 64-bit Python 3.10 to 3.14; "
        "on a Mac, an Apple processor and macOS 14. Elsewhere, the lessons run in Colab.",
    ),
    ("Long Path", "A file's path is too long for Windows. Move the course to a shorter one, such as C:\\course."),
)


class SetUpError(Exception):
    """Why the environment could not be made, in plain sentences."""


def say(text: str, end: str = "\n") -> None:
    """To standard error, so that what a command prints (`grade --json`) stays clean."""
    print(text, end=end, file=sys.stderr, flush=True)


# ---- What is known about the environment


def read_stamp() -> dict[str, Any]:
    """What the last set-up wrote when it was done; empty when there was none."""
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def write_stamp(stamp: dict[str, Any]) -> None:
    """Replace the stamp in one move: whoever reads it sees the old or the new one, never half of it."""
    draft = STAMP.with_suffix(".new")
    draft.write_text(json.dumps(stamp), encoding="utf-8")
    os.replace(draft, STAMP)


def fingerprint() -> dict[str, str]:
    """All that the environment depends on: a change to any of it means that set-up has work to do."""
    if WINDOWS:  # python.exe in .venv only starts the Python that pyvenv.cfg names
        home = re.search(r"^home\s*=\s*(.+?)\s*$", (VENV / "pyvenv.cfg").read_text(encoding="utf-8"), re.MULTILINE)
        base = Path(home[1] if home else "", "python.exe")
    else:
        base = PYTHON.resolve(strict=True)
    files = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    return {
        "folder": str(ROOT),  # an environment doesn't survive being moved or copied: its scripts hold its path
        "python": f"{base}, {base.stat().st_size} bytes, {base.stat().st_mtime_ns}",
        "files": hashlib.sha256(files).hexdigest(),
    }


def is_ready(extra: str) -> bool:
    """Whether the environment was set up to the end, with this extra, from these very files and this Python."""
    stamp = read_stamp()
    has_extra = stamp.pop("extra", None) in (extra, "test")  # test contains lab
    try:
        return has_extra and COURSE.exists() and stamp == fingerprint()
    except OSError:
        return False


def is_usable(stamp: dict[str, Any]) -> bool:
    """Whether pip may go on from what is there; if not, the environment is made anew."""
    if stamp == UNFINISHED or stamp.get("folder", str(ROOT)) != str(ROOT):
        return False
    try:
        probe = [PYTHON, "-I", "-c", "import sys, pip; sys.exit(sys.version_info < (3, 10))"]
        return subprocess.run(probe, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# ---- Making it


def set_up(extra: str) -> None:
    """Make or mend the environment; one process at a time."""
    VENV.mkdir(exist_ok=True)
    with LOCK.open("a") as lock:
        if not try_lock(lock):
            say("Another run is setting up the environment; waiting for it to finish.")
            while not try_lock(lock):
                time.sleep(0.5)
        if is_ready(extra):
            return
        start, before = time.monotonic(), read_stamp()
        LOG.write_text("", encoding="utf-8")
        extra = "test" if before.get("extra") == "test" else extra
        if is_usable(before):
            say("Bringing the course's environment in .venv up to date.")
        else:
            say("Making the course's environment in .venv. This happens once and takes a few minutes.")
            before = {}
            make_venv(lock)
        install(extra, before, lock)
        run_step(4, "Checking that it starts", [*COMMAND, "--help"], lock)
        write_stamp({"extra": extra, **fingerprint()})
        say(f"The environment is ready, after {time.monotonic() - start:.0f} s.")


def make_venv(lock: IO[str]) -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise SetUpError(
            "This Python comes without venv, which makes environments. On Debian and Ubuntu, install it with\n"
            "  sudo apt install python3-venv"
        )
    write_stamp(UNFINISHED)
    for entry in VENV.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry not in (STAMP, LOG, LOCK):
            entry.unlink()
    base = getattr(sys, "_base_executable", None) or sys.executable  # even if run by the Python inside .venv
    run_step(1, "Making .venv", [base, "-I", "-m", "venv", "--without-pip", str(VENV)], lock)
    run_step(2, "Putting pip into it", [str(PYTHON), "-I", "-m", "ensurepip", "--upgrade", "--default-pip"], lock)


def install(extra: str, before: dict[str, Any], lock: IO[str]) -> None:
    """Let pip install the package with its extra. Stopped while it changes files, it leaves UNFINISHED behind."""
    pip = [str(PYTHON), "-I", "-X", "utf8", "-m", "pip", "install", "--progress-bar", "off"]
    packages = ["-e", f".[{extra}]", "-c", "constraints.txt"]
    write_stamp(UNFINISHED)
    try:
        run_step(3, "Installing packages", [*pip, *packages], lock)
    except (SetUpError, KeyboardInterrupt):
        if "Installing collected packages" not in LOG.read_text(encoding="utf-8", errors="replace"):
            write_stamp(before)  # nothing was touched: what worked before still does
        raise
    write_stamp({})


def run_step(number: int, title: str, command: list[str], lock: IO[str]) -> None:
    """Run one step of the set-up with its output in the log."""
    with LOG.open("a", encoding="utf-8") as log, LOG.open(encoding="utf-8", errors="replace") as output:
        log.write(f"$ {shlex.join(command)}\n")
        log.flush()
        begin = output.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # The step holds the lock too: if this process is killed, no other set-up starts before the step has ended.
            pass_fds=() if WINDOWS else (lock.fileno(),),
        )
        try:
            watch(process, output, f"[{number}/4] {title}")
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if process.returncode:
            output.seek(begin)
            raise SetUpError(f"Step {number} of 4 failed: {title}.\n{explain(output.read())}")


def watch(process: "subprocess.Popen[bytes]", output: IO[str], label: str) -> None:
    """Show how far a step is until it ends: on a terminal in one live line, elsewhere in a line now and then."""
    live = sys.stderr.isatty()
    start = due = time.monotonic()
    detail = ""

    def show(detail: str, end: str) -> None:
        text, width = f"{label}, {time.monotonic() - start:.0f} s{detail}", shutil.get_terminal_size().columns - 1
        say(text[:width].ljust(width) if live else text, end=end if live else "\n")

    try:
        while process.poll() is None:
            for line in output:
                detail = condense(line) or detail
            if time.monotonic() >= due:
                due += 0.2 if live else 20
                show(detail, end="\r")
            time.sleep(0.1)
    finally:
        if live:
            show("", end="\n")


def condense(line: str) -> str:
    """What one line of pip's output says about how far it is; empty if nothing."""
    match = re.match(r"\s*(Collecting|Downloading|Using cached) (?:\S*/)?([^\s/]+)(?: (\(\d[^)]*B\)))?", line)
    if match:
        name = re.sub(r"(-[^-]+){3}\.whl.*", "", match[2])
        return f": {match[1].lower()} {name} {match[3] or ''}"
    if line.startswith("Installing collected packages:"):
        return f": unpacking {line.count(',') + 1} packages"
    return ""


def explain(output: str) -> str:
    """Why a step failed, from what it printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["(nothing)"]
    errors = [line for line in lines if re.match(r"(ERROR|error|\w*Error): (?![a-z-]+$)", line)]
    advice = [words + "\n" for pattern, words in ADVICE if re.search(pattern, output)]
    return f"Its last word was: {(errors or lines)[-1]}\n{''.join(advice[:1])}All that it printed is in {LOG}"


def try_lock(lock: IO[str]) -> bool:
    """Take the lock unless another process has it. The system drops it when its holder ends, however it ends."""
    try:
        if WINDOWS:
            import msvcrt

            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # anything else comes from a file system without locks: do without
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


# ---- Using it


def hand_over(arguments: list[str]) -> int:
    """Run `course` with these arguments, as in an activated environment, and return its exit code."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV), "PATH": path}
    if WINDOWS:  # exec on Windows returns to the prompt at once
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `course`
        return subprocess.call([*COMMAND, *arguments], env=environment)
    os.execve(COMMAND[0], [*COMMAND, *arguments], environment)


def main(arguments: list[str]) -> int:
    sys.stderr.reconfigure(errors="replace")  # a folder's name may not fit the terminal's encoding
    extra = "test" if arguments[:1] == ["test"] else "lab"
    if arguments[:1] in ([], ["-h"], ["--help"]) and not is_ready(extra):
        print(__doc__, end="")
        return 0
    try:
        if not is_ready(extra):
            set_up(extra)
        return hand_over(arguments or ["--help"])
    except KeyboardInterrupt:
        say("Stopped. To go on with the set-up, run the same command again.")
        return 130
    except SetUpError as error:
        say(f"The set-up did not finish. {error}")
    except OSError as error:
        say(f"The set-up did not finish. {error.strerror}: {error.filename or ROOT}")
    retry = shlex.join(["py" if WINDOWS else "python3", "course.py", *arguments])
    say(f"To try again, run the same command: {retry}\nIf it keeps failing, delete the folder .venv first.")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
