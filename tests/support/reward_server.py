"""Real HTTP servers that speak the documented formats of vLLM and SGLang, on their own threads.

    with RewardServer("vllm") as server:
        ...

An answer's score is what it says of itself (`quality=0.7`). `spoil` changes replies: a function of the reply and the
number of the request that returns another reply, a status, or bytes.
"""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from caps.testing import QUALITY, ScriptedEndpoint, count_tokens

PATHS = {
    "vllm": ("/v1/score", "/classify", "/pooling"),
    "sglang": ("/classify",),
}


def quality(text: str) -> float:
    found = QUALITY.findall(text)
    return float(found[-1]) if found else 0.5


class RewardServer(ScriptedEndpoint):
    def __init__(
        self,
        speaks: str = "vllm",
        *,
        spoil: Callable[[Any, int], Any] | None = None,
        score: Callable[[str], Any] = quality,
        most: int = 10**9,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._speaks, self._spoil, self._score, self._most = speaks, spoil, score, most
        self.paths: list[str] = []

    @property
    def answers(self) -> int:
        """How many answers were scored."""
        return sum(len(self._texts(body)) for body in self.bodies)

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        for path in PATHS[self._speaks]:
            app.router.add_post(path, self._rate)

    def _texts(self, body: dict) -> list[str]:
        if "messages" in body:
            return [body["messages"][-1]["content"]]
        return next(body[name] for name in ("text_2", "input", "text") if name in body)

    async def _rate(self, request: web.Request) -> web.Response:
        body, number = json.loads(await request.read()), len(self.bodies)
        self.bodies.append(body)
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        try:
            texts = self._texts(body)
        except StopIteration:
            return web.json_response({"error": {"message": "body: field required"}}, status=422)
        if any(len(text) > self._most for text in texts):
            return web.json_response({"error": {"message": "the input is too long", "code": 400}}, status=400)
        reply = self._reply_of(request.path, body, texts)
        reply = reply if self._spoil is None else self._spoil(reply, number)
        if isinstance(reply, int):
            return web.json_response({"error": {"message": "CUDA error"}}, status=reply)
        payload = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        return web.Response(body=payload, content_type="application/json")

    def _reply_of(self, path: str, body: dict, texts: list[str]) -> Any:
        scores = [self._score(text) for text in texts]
        tokens = [count_tokens(text) for text in texts]
        usage = {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens), "completion_tokens": 0}
        if self._speaks == "sglang":
            return [
                {"embedding": [score], "meta_info": {"id": "x", "prompt_tokens": count}}
                for score, count in zip(scores, tokens, strict=True)
            ]
        kinds: dict[str, Callable[[float], dict]] = {
            "/v1/score": lambda score: {"object": "score", "score": score},
            "/classify": lambda score: {"label": "good", "num_classes": 2, "probs": [-score, score]},
            "/pooling": lambda score: {"object": "pooling", "data": [[1.0], [0.25], [score]]},
        }
        data = [{"index": index, **kinds[path](score)} for index, score in enumerate(scores)]
        return {
            "id": "x",
            "object": "list",
            "created": 1,
            "model": body["model"],
            "data": data,
            "usage": usage,
        }
