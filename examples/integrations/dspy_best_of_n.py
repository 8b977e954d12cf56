"""DSPy: an LM whose answers are the best of four, by `caps serve`; no reward function is needed.

caps serve --base-url http://localhost:8000/v1 --port 8080
CAPS_SERVER=http://localhost:8080/v1 python examples/integrations/dspy_best_of_n.py
"""

import os

import dspy


def main() -> None:
    """Ask once; the usage has the four answers and the judge."""
    lm = dspy.LM(
        "openai/caps/" + os.environ.get("CAPS_MODEL", "qwen3-14b"),
        api_base=os.environ.get("CAPS_SERVER", "http://localhost:8080/v1"),
        api_key=os.environ.get("CAPS_SERVER_KEY", "none"),
        extra_body={"caps": {"n": 4}},
        cache=False,
        num_retries=0,
    )
    dspy.configure(lm=lm, track_usage=True)
    prediction = dspy.Predict("question -> answer")(question="What is 17 * 23?")
    print("answer:", prediction.answer)
    print("usage of all calls:", prediction.get_lm_usage())


if __name__ == "__main__":
    main()
