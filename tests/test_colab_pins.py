"""The course in Colab's notebook stack: installed from git as the set-up cell does it, it changes nothing, and runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PINS = {
    "numpy": "2.1.3",
    "matplotlib": "3.10.0",
    "ipywidgets": "7.7.1",
    "ipython": "7.34.0",
    "ipykernel": "6.17.1",
    "nbclient": "0.10.4",
    "anywidget": "0.9.21",
    "pytest": "8.4.2",
}
LESSONS = ["*"] if os.environ.get("COURSE_EVERYTHING") == "1" else ["00_*", "03_*", "04_*"]
AT_ONCE = 2  # notebooks

NO_NETWORK = re.compile(
    "connection broken|ConnectionError|ConnectTimeout|ReadTimeout|Max retries exceeded|Name or service not known|"
    "name resolution|ProxyError|SSLError|Network is unreachable|Connection refused|No address associated"
)

# Runs in the other environment: notebooks named in its arguments, each in a kernel of its own.
DRIVER = f"""
import asyncio, json, sys, time
import nbformat
from nbclient import NotebookClient

async def run(path, turn):
    async with turn:
        begun = time.monotonic()
        notebook = nbformat.read(path, 4)
        client = NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True)
        await client.async_execute()
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        bad = [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
        said = [(o.get("text") or o.get("evalue"))[-800:] for o in bad]
        print(json.dumps([path, time.monotonic() - begun, said]), flush=True)

async def main():
    turn = asyncio.Semaphore({AT_ONCE})
    await asyncio.gather(*(run(path, turn) for path in sys.argv[1:]))

asyncio.run(main())
"""
VERSIONS = """
import json
from importlib import metadata
print(json.dumps({each.metadata["Name"].lower(): each.version for each in metadata.distributions()}))
"""


def environment(folder: Path) -> dict[str, str]:
    """The variables of a machine on which nobody has set anything up for Jupyter."""
    own = {"IPYTHONDIR": "ipython", "JUPYTER_CONFIG_DIR": "jupyter", "JUPYTER_DATA_DIR": "data", "MPLCONFIGDIR": "mpl"}
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, **{name: str(folder / "home" / place) for name, place in own.items()}, "PIP_NO_INPUT": "1"}


def needs(name: str) -> set[str]:
    """A package and all that it needs, by canonical names, as far as it is installed here."""
    found: set[str] = set()
    waiting = {canonicalize_name(name)}
    while waiting:
        found.add(each := waiting.pop())
        for line in metadata.requires(each) or ():
            asked = Requirement(line)
            if asked.marker is None or asked.marker.evaluate({"extra": ""}):
                waiting |= {canonicalize_name(asked.name)} - found
    return found


def lend_torch(python: Path, folder: Path) -> list[str]:
    """Give torch, and only what it needs, to another environment: gigabytes and minutes less. Returns its pins."""
    folder.mkdir()
    pins = []
    for name in sorted(needs("torch") - PINS.keys()):
        package = metadata.distribution(name)
        pins.append(f"{name}=={package.version}")
        for entry in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (folder / entry).exists():
                (folder / entry).symlink_to(package.locate_file(entry))
    where = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    Path(where.strip(), "lent.pth").write_text(f"{folder}\n", encoding="utf-8")
    return pins


def install(python: Path, arguments: list[str], env: dict[str, str], may_lack: bool = False) -> None:
    """pip install; skips the test where there is no network, or (may_lack) no such version for this Python."""
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--retries", "1", "--timeout", "30"]
    done = subprocess.run([*pip, *arguments], env=env, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode == 0:
        return
    if NO_NETWORK.search(done.stderr):
        pytest.skip("the package index cannot be reached")
    lacking = re.search(r"No matching distribution found for (\S+)", done.stderr)
    if may_lack and lacking:
        pytest.skip(f"there is no {lacking[1]} for Python {sys.version_info[0]}.{sys.version_info[1]} on this system")
    pytest.fail(done.stdout + done.stderr)


def versions(python: Path, env: dict[str, str]) -> dict[str, str]:
    return json.loads(subprocess.check_output([python, "-c", VERSIONS], env=env))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the course as committed, for pip to install from."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("published")
    source, target = folder / "source", folder / "course"

    def git(*arguments: str | Path) -> str:
        who = ["-c", "user.name=course", "-c", "user.email=course@example.org"]
        return subprocess.check_output(["git", *who, *arguments], stderr=subprocess.STDOUT, text=True).strip()

    try:
        git("clone", "--quiet", "--no-checkout", ROOT, source)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"git cannot clone the course's folder: {error.output.strip()}")
    # One commit without a past: from a shallow clone, such as CI has, pip would fetch that past for ever.
    commit = git("-C", source, "commit-tree", "-m", "The course", "HEAD^{tree}")
    git("init", "--quiet", target)
    git("-C", source, "push", "--quiet", target, f"{commit}:refs/heads/published")
    git("-C", target, "checkout", "--quiet", "published")
    return target


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory, published: Path) -> tuple[Path, dict[str, str]]:
    """The Python of an environment like Colab's with the course in it, and its variables."""
    folder = tmp_path_factory.mktemp("colab")
    env = environment(folder)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    try:
        torch = lend_torch(python, folder / "lent")
    except OSError as error:
        pytest.skip(f"this system makes no symbolic links ({error.strerror})")
    wanted = [f"{name}=={version}" for name, version in PINS.items()]
    install(python, [*wanted, "--only-binary", ",".join(PINS)], env, may_lack=True)
    before = versions(python, env)
    print(f"\n{time.monotonic() - begun:.0f} s until Colab's packages were there")

    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(torch), encoding="utf-8")  # not the pins: that they stay is the question
    install(python, [f"git+{published.as_uri()}", "-c", str(constraints)], env)
    after = versions(python, env)
    print(f"{time.monotonic() - begun:.0f} s until the course was there")
    assert {name: after[name] for name in PINS} == PINS
    assert {name: (version, after.get(name)) for name, version in before.items() if after.get(name) != version} == {}
    return python, env


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_notebooks_run_in_colabs_stack_from_another_folder(
    published: Path, colab: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    python, env = colab
    # Colab comes with matplotlib's list of fonts; where it is made, matplotlib says so on stderr.
    code = "import course_utils.plots, matplotlib.pyplot, sys; print(course_utils.__file__, sys.prefix, sep='\\n')"
    package, prefix = subprocess.check_output([python, "-c", code], env=env, cwd=tmp_path, text=True).splitlines()
    assert Path(prefix) in Path(package).parents

    lessons = [path for pattern in LESSONS for path in sorted((published / "notebooks").glob(f"{pattern}.ipynb"))]
    paths = [str(path) for path in (*lessons, *sorted((published / "exercises").glob("*.ipynb")))]
    assert len(paths) >= 14
    done = subprocess.run([python, "-c", DRIVER, *paths], env=env, cwd=tmp_path, capture_output=True, encoding="utf-8")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for path, seconds, _ in results:
        print(f"{seconds:5.1f} s  {Path(path).parent.name}/{Path(path).name}")
    assert {path: said for path, _, said in results if said} == {}
    assert {path for path, _, _ in results} == set(paths), done.stderr
