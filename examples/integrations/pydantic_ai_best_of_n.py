"""pydantic-ai: an agent whose model answers with the best of four responses; the same model judges.

MODEL=gpt-4o-mini OPENAI_API_KEY=... python examples/integrations/pydantic_ai_best_of_n.py
"""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

from caps.integrations.pydantic_ai import BestOfNModel


def main() -> None:
    """Ask once; the usage has the four requests and the judge."""
    agent = Agent(BestOfNModel(OpenAIChatModel(os.environ.get("MODEL", "gpt-4o-mini")), n=4))
    result = agent.run_sync("What is 17 * 23?")
    print(result.output)
    print(result.usage, result.all_messages()[-1].provider_details["caps"]["calls"])


if __name__ == "__main__":
    main()
