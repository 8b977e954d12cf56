"""LangChain: the best of four outputs of a chain, as a chain and as a node of a LangGraph graph.

MODEL=gpt-4o-mini OPENAI_API_KEY=... python examples/integrations/langchain_best_of_n.py
"""

import os
from typing import TypedDict

from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from caps.integrations.langchain import BestOfN


class State(TypedDict):
    """What the graph passes on."""

    question: str
    answer: str


def main() -> None:
    """Ask a chain, then a graph with the chain as its node."""
    llm = ChatOpenAI(model=os.environ.get("MODEL", "gpt-4o-mini"), temperature=1)
    chain = BestOfN(ChatPromptTemplate.from_template("{question}") | llm, n=4, judge_llm=llm)
    with get_usage_metadata_callback() as counted:
        message = chain.invoke({"question": "What is 17 * 23?"})
    print(message.text, message.response_metadata["caps"]["calls"], dict(counted.usage_metadata))
    graph = StateGraph(State)
    graph.add_node("best", lambda state: {"answer": chain.invoke({"question": state["question"]}).text})
    graph.add_edge(START, "best")
    graph.add_edge("best", END)
    print("graph:", graph.compile().invoke({"question": "What is 23 * 17?"})["answer"])


if __name__ == "__main__":
    main()
