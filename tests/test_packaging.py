"""What the package asks for, said in several files, is one and the same thing; and its style and floors hold."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

# What Colab had in 2026-08. Its versions win: the set-up cell may not make pip upgrade any of them.
COLAB = {
    "ipykernel": "6.17.1",
    "ipython": "7.34.0",
    "ipywidgets": "7.7.1",
    "matplotlib": "3.10.0",
    "nbclient": "0.10.4",
    "numpy": "2.1.3",
    "pytest": "8.4.2",
    "torch": "2.11.0",
}


def direct_requirements() -> dict[str, Requirement]:
    """Everything that pyproject.toml asks for, extras included, by name."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    requirements = [Requirement(line) for lines in lists for line in lines]
    return {canonicalize_name(each.name): each for each in requirements if each.name != PROJECT["name"]}


def constraints(python: str) -> dict[str, list[Version]]:
    """The versions that constraints.txt names for a Python such as "3.11"."""
    environment = {"python_version": python, "python_full_version": f"{python}.99"}
    pins: dict[str, list[Version]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            (specifier,) = pin.specifier
            assert specifier.operator == "==", line
            if pin.marker is None or pin.marker.evaluate(environment):
                pins.setdefault(canonicalize_name(pin.name), []).append(Version(specifier.version))
    return pins


# ---- One list of requirements


def test_python_versions():
    assert PROJECT["requires-python"] == ">=3.10"


@pytest.mark.parametrize("python", PYTHONS)
def test_constraints_name_one_version_of_everything(python):
    pins = constraints(python)
    assert {name: versions for name, versions in pins.items() if len(versions) != 1} == {}
    requirements = direct_requirements()
    assert requirements.keys() - pins.keys() == set()
    refused = {name: str(pins[name][0]) for name, asked in requirements.items() if pins[name][0] not in asked.specifier}
    assert refused == {}
    assert pins["torch"] == [Version("2.13.0")]


def test_colab_is_admitted():
    requirements = direct_requirements()
    assert {name: version for name, version in COLAB.items() if version not in requirements[name].specifier} == {}
    assert "3.13" in PYTHONS


def test_conda_environment_asks_for_the_same():
    """conda brings Python and pip; every other name and range comes from pyproject.toml itself."""
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, through_pip = conda["dependencies"]
    name, ranges = python.split(" ")
    assert (name, pip) == ("python", "pip")
    assert ranges.split(",")[0] == PROJECT["requires-python"]
    assert ranges == f">={PYTHONS[0]},<3.{int(PYTHONS[-1].split('.')[1]) + 1}"
    assert through_pip == {"pip": ["-c constraints.txt", "-e .[test]"]}


def test_environment_has_the_versions_it_is_said_to():
    if not (ROOT / ".venv" / "setup.json").exists() or Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("not in the environment that course.py makes")
    pins = constraints("{}.{}".format(*sys.version_info))
    names = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    installed = {name: Version(metadata.version(name)).public for name in sorted(names)}
    assert installed == {name: str(pins[name][0]) for name in sorted(names)}


# ---- The package


def test_importing_is_cheap():
    code = "import sys, json, course_utils; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert set(json.loads(run.stdout)) & {"torch", "numpy", "matplotlib", "IPython", "typer", "rich"} == set()


def test_floors_hold():
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    run = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace"
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", run.stdout), run.stdout


@pytest.mark.parametrize("arguments", [["check", "--output-format=concise"], ["format", "--check"]])
def test_style(arguments):
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stdout + run.stderr


# ---- course.py and the licence


def test_course_py_needs_nothing_but_python():
    code = "import sys; sys.path.insert(0, '.'); import course; print(course.__file__)"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert run.returncode == 0, run.stderr


def test_licence_covers_code_and_text():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Permission is hereby granted, free of charge" in text
    assert "CC BY 4.0" in text
    assert PROJECT["license"] == "MIT"  # the package is code only


def test_ci_runs_what_the_readme_says():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^python3 course\.py test\b", script, re.MULTILINE)
    assert "set -euo pipefail" in script
