"""Evaluates 1,000 samples with inspect_ai, each in a sandbox of its own on a node of a Ray cluster.

    pip install 'agent-sandbox[ray,inspect]'
    ray start --head
    python examples/python/evaluate_on_cluster.py [auto | ray://HOST:10001] [SAMPLES]

The model is a stand-in that needs no key: it runs one command in each sandbox and answers with what that printed.
"""

from __future__ import annotations

import sys
import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from sandbox.integrations.inspect_environment import SandboxConfig

AT_ONCE = 16  # samples that have a sandbox at a time


@solver
def adds_the_numbers() -> Solver:
    """What an agent would do: run code in the sandbox, and answer with its output."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        done = await sandbox().exec(["python3", "-c", "print(sum(map(int, open('numbers').read().split())))"])
        state.output.completion = done.stdout.strip()
        return state

    return solve


def main() -> int:
    address = sys.argv[1] if len(sys.argv) > 1 else "auto"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    samples = [
        Sample(input="Add the numbers.", target=str(3 * number + 1), files={"numbers": f"{number} {2 * number} 1"})
        for number in range(count)
    ]
    place = SandboxEnvironmentSpec("sandbox", SandboxConfig(cluster=address))
    task = Task(dataset=samples, solver=adds_the_numbers(), scorer=match(location="exact"), sandbox=place)
    with tempfile.TemporaryDirectory() as logs:
        most = {"max_sandboxes": AT_ONCE, "max_samples": AT_ONCE}
        # A node may be lost on the way (`SandboxLost`): its samples are tried again, on others.
        (log,) = eval(task, model="mockllm/model", log_dir=logs, display="none", retry_on_error=3, **most)
        again = sum(len(one.error_retries or []) for one in log.samples or [])  # they are read from the log's file
    assert log.results is not None, log.error
    right = log.results.scores[0].metrics["accuracy"].value
    print(f"{log.results.completed_samples} of {count} samples, {right:.0%} right, tried again {again} times")
    return 0 if (log.results.completed_samples, right) == (count, 1.0) else 1


if __name__ == "__main__":
    sys.exit(main())
