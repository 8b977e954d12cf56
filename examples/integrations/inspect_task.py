"""Inspect AI: the best of four answers to each sample; the evaluated model judges, and Inspect counts it.

inspect eval examples/integrations/inspect_task.py --model openai/gpt-4o --solver caps/best_of_n -S n=4
"""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes

from caps.integrations.inspect_ai import best_of_n, probability


@task
def products() -> Task:
    """Two products; `caps/best_of_n` on the command line would replace the solver."""
    samples = [
        Sample(id="first", input="What is 17 * 23?", target="391"),
        Sample(id="second", input="What is 23 * 17?", target="391"),
    ]
    return Task(dataset=samples, solver=best_of_n(n=4), scorer=[includes(), probability()])
