"""pydantic-ai: an agent whose model answers with the best of four responses, by `caps serve`.

caps serve --base-url http://localhost:8000/v1 --port 8080
CAPS_SERVER=http://localhost:8080/v1 python examples/integrations/pydantic_ai_best_of_n.py
"""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def main() -> None:
    """Ask once; the usage has the four answers and the judge."""
    server = OpenAIProvider(
        base_url=os.environ.get("CAPS_SERVER", "http://localhost:8080/v1"),
        api_key=os.environ.get("CAPS_SERVER_KEY", "none"),
    )
    model = OpenAIChatModel("caps/" + os.environ.get("CAPS_MODEL", "qwen3-14b"), provider=server)
    agent = Agent(model, model_settings={"extra_body": {"caps": {"n": 4}}})
    result = agent.run_sync("What is 17 * 23?")
    print(result.output, result.usage)


if __name__ == "__main__":
    main()
