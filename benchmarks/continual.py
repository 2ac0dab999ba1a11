"""Forgetting, five seeds: Korean numbers first, German numbers then, by each method; means and spreads.

    python benchmarks/continual.py [SEEDS]

For every method: Korean accuracy at the moment when German first reaches 50% and 90%, and both at the end. A curve is
measured every 10 of 200 steps of the second phase. Results are kept in continual.json beside this file, seed by seed;
run again, it goes on with what is missing.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from pathlib import Path

from course_utils import corpora
from course_utils.continual import Method, accuracy, first_phase, kept_at, second_phase
from course_utils.training import write_atomically

RESULTS = Path(__file__).with_suffix(".json")
METHODS = (
    Method("plain"),
    Method("a sixth of the rate", rate=5e-4),
    Method("replay 25%, 20 kept", replay=0.25, kept=20),
    Method("replay 25%, 200 kept", replay=0.25),
    Method("replay 50%, 200 kept", replay=0.5),
    Method("EWC 1", ewc=1.0),
    Method("EWC 3", ewc=3.0),
    Method("EWC 10", ewc=10.0),
    Method("EWC 100", ewc=100.0),
    Method("CMS 1/4/16", periods=(1, 4, 16)),
    Method("CMS 1/8/64", periods=(1, 8, 64)),
    Method("CMS 1/8/64 and replay 25%", periods=(1, 8, 64), replay=0.25),
)


def run(seed: int, done: dict[str, dict]) -> None:
    for tagged in (True, False):
        tasks, models = corpora.two_tasks(tagged), {}
        for method in METHODS if tagged else METHODS[:1]:
            key = f"{seed}/{'tag' if tagged else 'no tag'}/{method.name}"
            if key in done:
                continue
            if method.periods not in models:
                models[method.periods] = first_phase(tasks, seed, 300, method)
            model = copy.deepcopy(models[method.periods])
            before = accuracy(model, tasks.korean[1], tasks)
            curve = second_phase(model, tasks, method, seed, 200, 10)
            done[key] = {"before": before, **vars(curve)}
            write_atomically(RESULTS, lambda path: path.write_text(json.dumps(done)))
            print(f"{key}: Korean {before:.2f} → {curve.korean[-1]:.2f}, German {curve.german[-1]:.2f}", flush=True)


def table(done: dict[str, dict]) -> None:
    from course_utils.continual import Curve

    print(f"\n{'':<36}{'Korean when German ≥ 50%':>26}{'… ≥ 90%':>16}{'end: Korean':>16}{'German':>14}")
    groups: dict[str, list[Curve]] = {}
    for key, entry in done.items():
        name = key.split("/", 1)[1]
        groups.setdefault(name, []).append(Curve(entry["steps"], entry["korean"], entry["german"]))
    for name, curves in groups.items():
        columns = (
            [kept_at(c, 0.5) for c in curves],
            [kept_at(c, 0.9) for c in curves],
            [c.korean[-1] for c in curves],
            [c.german[-1] for c in curves],
        )
        print(f"{name:<36}" + "".join(f"{_spread(column):>18}" for column in columns))


def _spread(values: list[float]) -> str:
    known = [v for v in values if v == v]
    if len(known) < len(values):
        return f"reached {len(known)} of {len(values)}"
    return f"{statistics.mean(known):.2f} ± {statistics.pstdev(known):.2f}"


def main() -> None:
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        run(seed, done)
    table(done)


if __name__ == "__main__":
    main()
