"""A real server with a Batch API, and files of results as providers write them; both misbehave as told.

    with BatchServer(fate=lambda body, nth: Status(400, ...) if nth == 3 else better_quality_wins(body)) as server:

`fate` is what becomes of a request of a batch, by its body and its number (from 0): a `Reply`, a `Status`, `EXPIRED`,
`GARBAGE` (a line that is none) or `DROPPED` (no line at all). `paid` counts every request that was run, by its key.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from caps.core.errors import BatchWaitingError
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins
from support.running import run_here

EXPIRED, GARBAGE, DROPPED = "expired", "garbage", "dropped"
Fate = Callable[[dict, int], Any]


def by_quality(body: dict, number: int) -> Reply:
    return better_quality_wins(body)


def result_lines(requests: str, fate: Fate = by_quality, start: int = 0) -> tuple[list[str], list[str]]:
    """Lines of the output file and of the error file for a file of requests, each in another order."""
    output, errors = [], []
    for number, line in enumerate(requests.splitlines(), start=start):
        row = json.loads(line)
        assert (row["method"], row["url"]) == ("POST", "/v1/chat/completions")
        end, base = fate(row["body"], number), {"id": f"batch_req_{number}", "custom_id": row["custom_id"]}
        response = {"status_code": 200, "request_id": f"r{number}"}
        if isinstance(end, Reply):
            output.append(
                json.dumps({**base, "response": {**response, "body": end.body(row["body"])}, "error": None})
            )
        elif isinstance(end, Status):
            response |= {"status_code": end.status, "body": end.body}
            errors.append(json.dumps({**base, "response": response, "error": None}))
        elif end == EXPIRED:
            error = {"code": "batch_expired", "message": "The completion window is over."}
            errors.append(json.dumps({**base, "response": None, "error": error}))
        elif end == GARBAGE:
            output.append('{"custom_id": "half a li')
    chance = random.Random(start)
    chance.shuffle(output)
    chance.shuffle(errors)
    return output, errors


class BatchServer(ScriptedEndpoint):
    """Chat completions and a Batch API; a batch is done after so many looks at it."""

    def __init__(self, fate: Fate = by_quality, *, looks: int = 1, **more: Any) -> None:
        super().__init__(better_quality_wins, **more)
        self.fate, self.looks = fate, looks
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict] = {}
        self.paid: Counter[str] = Counter()
        self.trouble: list[web.Response] = []  # what the next calls of the Batch API get instead
        self.away: list[Status] = []  # what the next looks at a batch get instead
        self.calls: list[str] = []
        self.lost_reply = asyncio.Event()  # set: the next batch is made and its reply lost
        self.refusal: str | None = None  # why batches fail as a whole
        self.busiest = 0

    def add_routes(self, app: web.Application) -> None:
        app.middlewares.append(self._troubled)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{name}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list_batches)
        app.router.add_get("/v1/batches/{name}", self._look)

    @property
    def sizes(self) -> list[int]:
        """Requests of each batch."""
        return [batch["request_counts"]["total"] for batch in self.batches.values()]

    @property
    def prompts(self) -> list[str]:
        """All prompts of all batches."""
        rows = [
            json.loads(line)
            for batch in self.batches.values()
            for line in self.files[batch["input_file_id"]].splitlines()
        ]
        return [row["body"]["messages"][0]["content"] for row in rows]

    @web.middleware
    async def _troubled(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if "chat" not in request.path:
            self.calls.append(f"{request.method} {request.path}")
            if self.trouble:
                return self.trouble.pop(0)
        return await handler(request)

    async def _upload(self, request: web.Request) -> web.Response:
        form = {part.name: await part.text() async for part in await request.multipart()}
        assert form["purpose"] == "batch"
        name = f"file-{len(self.files)}"
        self.files[name] = form["file"]
        return web.json_response({"id": name, "object": "file", "purpose": "batch"})

    async def _create(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        assert (wanted["endpoint"], wanted["completion_window"]) == ("/v1/chat/completions", "24h")
        source, name = wanted["input_file_id"], f"batch_{len(self.batches)}"
        lines = self.files[source].splitlines()
        batch = {"id": name, "object": "batch", "input_file_id": source, "status": "validating", "looks": self.looks,
                 "request_counts": {"total": len(lines), "completed": 0, "failed": 0}}  # fmt: skip
        self.batches[name] = batch
        if not self.refusal:
            self.paid.update(json.loads(line)["custom_id"] for line in lines)
        self.busiest = max(self.busiest, sum(one["status"] == "validating" for one in self.batches.values()))
        if self.lost_reply.is_set():
            self.lost_reply.clear()
            request.transport.abort()
        return web.json_response(batch)

    async def _look(self, request: web.Request) -> web.Response:
        batch = self.batches.get(request.match_info["name"])
        if self.away:
            gone = self.away.pop()
            return web.json_response(gone.body, status=gone.status, headers=gone.headers)
        if batch is None:
            return web.json_response({"error": {"message": "No such batch"}}, status=404)
        batch["looks"] -= 1
        if batch["looks"] <= 0 and batch["status"] == "validating":
            self._finish(batch)
        return web.json_response(batch)

    def _finish(self, batch: dict) -> None:
        if self.refusal:
            batch |= {"status": "failed", "errors": {"object": "list", "data": [{"message": self.refusal}]}}
            return
        start = sum(
            one["request_counts"]["total"] for one in self.batches.values() if one.get("output_file_id")
        )
        output, errors = result_lines(self.files[batch["input_file_id"]], self.fate, start)
        batch["status"] = "expired" if any("batch_expired" in line for line in errors) else "completed"
        for field, lines in (("output_file_id", output), ("error_file_id", errors)):
            if lines or field == "output_file_id":
                batch[field] = f"file-{len(self.files)}"
                self.files[batch[field]] = "\n".join(lines) + "\n"

    async def _list_batches(self, request: web.Request) -> web.Response:
        rows = list(self.batches.values())[::-1]
        return web.json_response({"object": "list", "data": rows, "has_more": False})

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self.files[request.match_info["name"]].encode(), content_type="application/octet-stream"
        )


def select_in_batches(cases, folder, *words):
    """`caps select` through files in a folder, with a journal beside it."""
    where = ("--model", "stub", "--batch-dir", folder, "--journal", folder.parent / "journal.sqlite")
    return run_here("select", cases, "--engine", "batch", *where, *words)


def answer_files(folder, fate=by_quality):
    """Do a provider's work on every request file without results: an output file and an error file."""
    for path in sorted((folder / "requests").glob("*.jsonl")):
        results = folder / "results" / path.name
        if not results.exists():
            output, errors = result_lines(path.read_text(), fate, 1000 * int(path.stem))
            results.write_text("".join(f"{line}\n" for line in output))
            results.with_suffix(".errors.jsonl").write_text("".join(f"{line}\n" for line in errors))


def to_the_end(step, folder, fate=by_quality):
    """Run a command through batch files until it waits no more."""
    while True:
        try:
            return step()
        except BatchWaitingError:
            answer_files(folder, fate)


def request_rows(folder, name):
    """The requests in a request file."""
    return [json.loads(line) for line in (folder / "requests" / name).read_text().splitlines()]
