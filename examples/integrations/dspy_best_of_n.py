"""DSPy: the best of four predictions, where `dspy.BestOfN` would need a reward function.

OPENAI_API_KEY=... python examples/integrations/dspy_best_of_n.py
"""

import os

import dspy

from caps.integrations.dspy import BestOfN


def main() -> None:
    """Predict four times with the LM that also judges."""
    dspy.configure(lm=dspy.LM(os.environ.get("MODEL", "openai/gpt-4o-mini"), cache=False), track_usage=True)
    product = BestOfN(dspy.Predict("question -> answer"), N=4)
    prediction = product(question="What is 17 * 23?")
    print("answer:", prediction.answer)
    print("candidate", prediction.caps["winner"], "with probability", prediction.caps["probability"])
    print("judge calls:", prediction.caps["calls"], "usage of all calls:", prediction.get_lm_usage())


if __name__ == "__main__":
    main()
