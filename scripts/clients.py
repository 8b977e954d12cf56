"""Run the clients people use against `caps serve` over a stub, each in its own environment; needs network.

Writes a table: for each client and API, whether an answer, a stream and a call of tools come through.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import venv
from collections import deque
from pathlib import Path
from typing import Any

from caps.testing import Reply, ScriptedEndpoint, is_judge, running, upstream

HERE = Path(__file__).parent
PACKAGES = {  # what is installed for each client
    "openai": ["openai"],
    "anthropic": ["anthropic"],
    "litellm": ["litellm", "mcp"],  # it imports mcp for tools and responses, but does not require it
    "langchain-openai": ["langchain-openai"],
    "instructor": ["instructor", "anthropic"],
    "dspy": ["dspy"],
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
KEY = "sk-client"
BEGIN, END = "<!-- clients -->", "<!-- end of clients -->"


def behave(body: dict[str, Any], number: int) -> Any:
    """Judge, call the first tool, fill in a form, or answer, as the request asks for."""
    if is_judge(body):
        return upstream(body, number)
    tools = body.get("tools")
    if tools and body["messages"][-1]["role"] != "tool":
        function = {"name": tools[0]["function"]["name"], "arguments": '{"city": "Oslo"}'}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        return Reply(None, finish="tool_calls", message={"tool_calls": calls})
    if body.get("response_format"):
        return Reply('{"city": "Oslo"}')
    if "[[ ## next_tool_name ## ]]" in str(body["messages"]):
        name, given = (
            ("finish", "{}") if "cold" in str(body["messages"][-1]) else ("look_up", '{"city": "Oslo"}')
        )
        fields = {"next_thought": "I look.", "next_tool_name": name, "next_tool_args": given}
        return Reply("\n\n".join(f"[[ ## {key} ## ]]\n{value}" for key, value in fields.items()))
    if "[[ ## answer ## ]]" in str(body["messages"]):
        return Reply(
            "[[ ## reasoning ## ]]\nSo it is.\n\n[[ ## answer ## ]]\nIt is 4.\n\n[[ ## completed ## ]]"
        )
    return Reply("It is 4.")


def python_of(folder: Path, packages: list[str]) -> Path:
    """The interpreter of an environment with these packages, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *packages]
        subprocess.run(install, check=True)  # noqa: S603
    return python


def try_client(name: str, url: str, environments: Path) -> dict[str, Any]:
    """Run the checks of a client; its version and results."""
    python = python_of(environments / name, PACKAGES[name])
    command = [python, HERE / "client_checks.py", name, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        return {"version": "?", "results": [["chat", "answer", done.stderr[-400:] or "it ended"]]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(clients: dict[str, dict[str, Any]]) -> str:
    """The table of the documentation."""
    lines = ["| client | version | API | answer | stream | tools | image |", "|---|---|---|---|---|---|---|"]
    for name, client in clients.items():
        apis = dict.fromkeys(api for api, _, _ in client["results"])
        for api in apis:
            said = {what: result for where, what, result in client["results"] if where == api}
            marks = ["–" if what not in said else "yes" if said[what] == "ok" else "**no**"
                     for what in ("answer", "stream", "tools", "image")]  # fmt: skip
            lines.append(f"| `{name}` | {client['version']} | `{PATHS[api]}` | {' | '.join(marks)} |")
    return "\n".join(lines)


def main() -> int:
    """Start the servers, run every client, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("clients", nargs="*", help=f"some of {', '.join(PACKAGES)}; default: all")
    parser.add_argument("--environments", type=Path, help="keep the environments in this folder")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the table into a page, too")
    args = parser.parse_args()
    tried = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedEndpoint(behave, models=("m",)) as stub,
        running(stub.url, "--samples", 3, "--heartbeat", 0.05, CAPS_SERVER_API_KEY=KEY) as serving,
    ):
        # What the server logs is read and dropped: a full pipe would stop it.
        threading.Thread(target=deque, args=(serving.process.stderr, 0), daemon=True).start()
        for name in args.clients or PACKAGES:
            tried[name] = try_client(name, serving.url, args.environments or Path(folder))
            for api, what, said in tried[name]["results"]:
                print(f"{name} {tried[name]['version']}, {api}, {what}: {said}", flush=True)
    print(table(tried))
    if args.into:
        text = args.into.read_text()
        head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
        args.into.write_text(f"{head}{BEGIN}\n{table(tried)}\n{END}{tail}")
    return any(said != "ok" for client in tried.values() for _, _, said in client["results"])


if __name__ == "__main__":
    sys.exit(main())
