"""LiteLLM: a virtual model of a router (or of the proxy) whose answers are the best of four, by `caps serve`.

caps serve --base-url http://localhost:8000/v1 --port 8080
CAPS_SERVER=http://localhost:8080/v1 python examples/integrations/litellm_router.py
"""

import os

import litellm

ROUTES = [
    {
        "model_name": "best-of-4",  # the name that clients use
        "litellm_params": {
            "model": "openai/caps/" + os.environ.get("CAPS_MODEL", "qwen3-14b"),  # its model, behind caps/
            "api_base": os.environ.get("CAPS_SERVER", "http://localhost:8080/v1"),
            "api_key": os.environ.get("CAPS_SERVER_KEY", "none"),
            "extra_body": {"caps": {"n": 4}},
        },
    }
]


def main() -> None:
    """Ask the virtual model; the usage has the four answers and the judge."""
    router = litellm.Router(model_list=ROUTES, num_retries=0)
    question = [{"role": "user", "content": "What is 17 * 23?"}]
    reply = router.completion(model="best-of-4", messages=question)
    print(reply.choices[0].message.content, reply.usage.total_tokens, "tokens")


if __name__ == "__main__":
    main()
