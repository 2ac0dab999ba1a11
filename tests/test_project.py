"""Programs that run on behalf of the ``course`` command end when it is ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from course_utils import project
child = "import sys, time; open(sys.argv[1], 'w').write('up'); time.sleep(60)"
sys.exit(project._call([sys.executable, "-c", child, sys.argv[1]], Path(".")))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to hand on")
def test_ending_the_command_ends_its_program(tmp_path: Path) -> None:
    up = tmp_path / "up"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(up)])
    for _ in range(200):
        if up.exists():
            break
        time.sleep(0.05)
    assert up.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) != 0
