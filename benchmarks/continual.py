"""Forgetting, five seeds: Korean numbers first, German numbers then, by each method; means and spreads.

    python benchmarks/continual.py [SEEDS]

For every method: Korean accuracy at the moment when German first reaches 50% and 90%, and both at the end. A curve is
measured every 10 of 200 steps of the second phase. Results are kept in continual.json beside this file, seed by seed,
with the settings they were made with; run again, it goes on with what is missing or was made with others.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from course_utils import corpora
from course_utils.continual import Curve, Method, first_phase, kept_at, second_phase
from course_utils.training import write_atomically

RESULTS = Path(__file__).with_suffix(".json")
FIRST, SECOND, EVERY = 300, 200, 10  # steps of both phases, and between measurements
SLOW = (1, 8, 64)
METHODS = (
    Method("plain"),
    Method("a sixth of the rate", rate=5e-4),
    Method("only feed-forward trained", trained="feed-forward"),
    Method("all but feed-forward trained", trained="the rest"),
    Method("replay 25%, 20 kept", replay=0.25, kept=20),
    Method("replay 25%, 200 kept", replay=0.25),
    Method("replay 50%, 200 kept", replay=0.5),
    Method("EWC 0.1", ewc=0.1),
    Method("EWC 0.3", ewc=0.3),
    Method("EWC 1", ewc=1.0),
    Method("EWC 3", ewc=3.0),
    Method("EWC 10", ewc=10.0),
    Method("EWC 100", ewc=100.0),
    Method("EWC 0.3, equal votes", ewc=0.3, equal_votes=True),
    Method("EWC 1, equal votes", ewc=1.0, equal_votes=True),
    Method("EWC 3, equal votes", ewc=3.0, equal_votes=True),
    Method("CMS 1/4/16", periods=(1, 4, 16)),
    Method("CMS 1/8/64", periods=SLOW),
    Method("CMS 1/8/64, a sixth of the rate", periods=SLOW, rate=5e-4),
    Method("CMS chain 1/8/64", periods=SLOW, chain=True),
    Method("CMS chain 1/8/64, only it trained", periods=SLOW, chain=True, trained="feed-forward"),
    Method("CMS 1/8/64 and replay 25%", periods=SLOW, replay=0.25),
    Method("CMS chain 1/8/64 and replay 25%", periods=SLOW, chain=True, replay=0.25),
)


def run(seed: int, done: dict[str, dict]) -> None:
    for tagged in (True, False):
        tasks, models = corpora.two_tasks(tagged), {}
        for method in METHODS if tagged else METHODS[:1]:
            key = f"{seed}/{'tag' if tagged else 'no tag'}/{method.name}"
            settings = made_with(method)
            if done.get(key, {}).get("settings") == settings:
                continue
            kind = method.periods, method.chain
            if kind not in models:
                models[kind] = first_phase(tasks, seed, FIRST, method)
            model = copy.deepcopy(models[kind])
            curve = second_phase(model, tasks, method, seed, SECOND, EVERY)
            done[key] = {"settings": settings, "before": curve.korean[0], **vars(curve)}
            write_atomically(RESULTS, lambda path: path.write_text(as_lines(done)))
            ends = f"Korean {curve.korean[0]:.2f} → {curve.korean[-1]:.2f}, German {curve.german[-1]:.2f}"
            print(f"{key}: {ends}", flush=True)


def made_with(method: Method) -> dict:
    """What the run depends on, as JSON gives it back: what is not a default, and the steps."""
    defaults = asdict(Method(""))
    chosen = {field: value for field, value in asdict(method).items() if value != defaults[field]}
    return json.loads(json.dumps({**chosen, "phases": [FIRST, SECOND, EVERY]}))


def as_lines(done: dict[str, dict]) -> str:
    """JSON with one line a run."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in done.items()) + "\n}\n"


def table(done: dict[str, dict]) -> None:
    print(f"\n{'':<42}{'Korean when German ≥ 50%':>26}{'… ≥ 90%':>16}{'end: Korean':>16}{'German':>14}")
    for tag, methods in (("tag", METHODS), ("no tag", METHODS[:1])):
        for method in methods:
            entries = [entry for key, entry in done.items() if key.split("/", 1)[1] == f"{tag}/{method.name}"]
            print(f"{tag + '/' + method.name:<42}" + "".join(f"{cell:>18}" for cell in row(entries)))


def row(entries: list[dict]) -> list[str]:
    """Korean when German reaches 50% and 90%, and both languages at the end: each mean and spread over seeds."""
    curves = [Curve(entry["steps"], entry["korean"], entry["german"]) for entry in entries]
    columns = (
        [kept_at(c, 0.5) for c in curves],
        [kept_at(c, 0.9) for c in curves],
        [c.korean[-1] for c in curves],
        [c.german[-1] for c in curves],
    )
    return [_spread(column) for column in columns]


def _spread(values: list[float]) -> str:
    known = [v for v in values if v == v]
    if not values or len(known) < len(values):
        return f"reached {len(known)} of {len(values)}"
    return f"{statistics.mean(known):.2f} ± {statistics.stdev(known) if len(known) > 1 else 0:.2f}"


def main() -> None:
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        run(seed, done)
    table(done)


if __name__ == "__main__":
    main()
