"""lm-evaluation-harness: four responses to each question, of which a filter keeps the best.

CAPS_MODEL=m CAPS_BASE_URL=http://localhost:8000/v1 python examples/integrations/lm_eval_task.py
"""

import os

import lm_eval
from lm_eval.api.task import ConfigurableTask

import caps.integrations.lm_eval  # noqa: F401  (registers the filter)
import datasets

QUESTIONS = [{"question": "What is 17 * 23?", "answer": "391"}, {"question": "17 times 23?", "answer": "391"}]
BEST, FIRST = {"function": "caps", "question": "{{question}}"}, {"function": "take_first"}
TASK = {
    "task": "products",
    "custom_dataset": lambda **_: datasets.DatasetDict({"test": datasets.Dataset.from_list(QUESTIONS)}),
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["</s>"], "do_sample": True, "temperature": 0.7},
    "repeats": 4,
    "filter_list": [
        {"name": name, "filter": [*steps, {"function": "regex", "regex_pattern": r"boxed\{(\d+)\}"}, FIRST]}
        for name, steps in {"first": [], "best-of-4": [BEST]}.items()
    ],
    "metric_list": [{"metric": "exact_match"}],
}

if __name__ == "__main__":
    where = f"model={os.environ['CAPS_MODEL']},base_url={os.environ['CAPS_BASE_URL']}/chat/completions"
    evaluation = lm_eval.simple_evaluate(
        "local-chat-completions", where, tasks=[ConfigurableTask(config=TASK)], apply_chat_template=True
    )
    print(
        {name: value for name, value in evaluation["results"]["products"].items() if "exact_match," in name}
    )
