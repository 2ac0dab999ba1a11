"""How long the number task takes to make, and what importing the package costs beside importing torch.

python benchmarks/number_words.py
"""

import subprocess
import sys
import time

from course_utils.corpora import number_pair, number_task


def seconds_to_make(pairs: int) -> float:
    """CPU seconds for ``pairs`` training pairs and 1,000 test pairs, nothing cached."""
    number_pair.cache_clear()
    start = time.process_time()
    number_task(train=pairs, test=1_000)
    return time.process_time() - start


def seconds_to_import(module: str) -> float:
    """Median wall seconds of ``import module`` over five new interpreters."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return sorted(runs)[2]


if __name__ == "__main__":
    print(f"20,000 pairs: {seconds_to_make(20_000):.2f} s of CPU")
    ours, torch = seconds_to_import("course_utils"), seconds_to_import("torch")
    print(f"import course_utils: {ours:.3f} s, {ours / torch:.3f} of import torch ({torch:.2f} s)")
