"""The canonical check, as it runs inside the learner's kernel: it lets the grader call the answer.

Nothing is judged here, no case is made here and no right value is computed here; the grader's own process does that.
"""

from __future__ import annotations

import socket

import torch

from course_utils.grading.inside import watch
from course_utils.grading.inside.channel import Channel, Closed
from course_utils.grading.inside.peer import Peer


def serve(exercise_id: str, function: str, port: int, nonce: str) -> None:
    """Connect to the grader on this machine's ``port`` and do what it asks of the notebook's ``function``.

    Args:
        exercise_id: for instance "2.1".
        function: the name under which the notebook defines the answer.
        port: where the grader listens.
        nonce: this run's own word, by which the grader knows its own check.
    """
    from IPython import get_ipython

    answer = get_ipython().user_ns.get(function)
    channel = Channel(socket.create_connection(("127.0.0.1", port), timeout=60))
    try:
        channel.send({"nonce": nonce, "exercise": exercise_id, "defined": callable(answer), "patched": watch.patched()})
        if callable(answer):
            torch.set_num_threads(1)  # the cases are small, and more threads wait for each other on a busy machine
            peer = Peer(channel)
            peer.offer(answer)
            peer.serve()
    except Closed:
        print("The grader has stopped listening.")
    finally:
        channel.close()
