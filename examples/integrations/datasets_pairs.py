"""Hugging Face datasets: choose from the rows of one, and load the judged pairs for DPO, such as with TRL.

CAPS_MODEL=qwen3-14b CAPS_BASE_URL=http://localhost:8000/v1 python examples/integrations/datasets_pairs.py
"""

import subprocess
import sys
from pathlib import Path

import caps
from datasets import Dataset, load_dataset

QUALITIES = {"391": 0.9, "381": 0.2, "401": 0.3, "291": 0.4}
SAMPLES = Dataset.from_list(
    [
        {
            "task": "product",
            "question": "What is 17 * 23?",
            "completion": rf"With quality={quality} it is \boxed{{{answer}}}",
            "is_correct": answer == "391",
        }
        for answer, quality in QUALITIES.items()
    ]
)


def run_caps(*words: str) -> None:
    """Run a command of caps."""
    subprocess.run([sys.executable, "-m", "caps", *words], check=True)  # noqa: S603


def main() -> None:
    """Choose, then write pairs and read them back."""
    (best,) = caps.select_many_sync(SAMPLES, group_by="task", domain="math")
    print(f"chosen: {best.answer}, correct: {best.correct}")
    SAMPLES.to_json("samples.jsonl")
    run_caps("select", "samples.jsonl", "--strategy", "round-robin", "--out", "run", "--force", "--quiet")
    run_caps("export", "run", "--format", "dpo", "-o", "pairs.jsonl")
    pairs = load_dataset("json", data_files="pairs.jsonl", split="train", cache_dir=str(Path("cache")))
    agree = sum(pair["chosen_correct"] >= pair["rejected_correct"] for pair in pairs)
    print(
        f"{len(pairs)} pairs with {', '.join(pairs.column_names)}; the labels contradict {len(pairs) - agree}"
    )


if __name__ == "__main__":
    main()
