"""LangChain: a chat model whose answers are the best of four, by `caps serve`, in a chain.

caps serve --base-url http://localhost:8000/v1 --port 8080
CAPS_SERVER=http://localhost:8080/v1 python examples/integrations/langchain_best_of_n.py

`caps.best_sync(question, texts)` chooses among the outputs of a chain that is run several times.
"""

import os

from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI


def main() -> None:
    """Ask a chain; the usage has the four answers and the judge."""
    llm = ChatOpenAI(
        model="caps/" + os.environ.get("CAPS_MODEL", "qwen3-14b"),
        base_url=os.environ.get("CAPS_SERVER", "http://localhost:8080/v1"),
        api_key=os.environ.get("CAPS_SERVER_KEY", "none"),
        extra_body={"caps": {"n": 4}},
        max_retries=0,
    )
    chain = ChatPromptTemplate.from_template("{question}") | llm
    message = chain.invoke({"question": "What is 17 * 23?"})
    print("chain:", message.text, message.usage_metadata)


if __name__ == "__main__":
    main()
