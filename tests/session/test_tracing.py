"""Spans and metrics: a real run sends them to a real collector, and no text of a case is among them."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from caps.testing import ScriptedEndpoint, Status, better_quality_wins, is_judge, upstream, write_cases
from support.shell import installed


class Collector:
    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> "Collector":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def variables(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }

    def spans(self) -> list:
        requests = [
            ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"
        ]
        return [
            span
            for one in requests
            for resource in one.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def sums(self) -> dict[str, float]:
        last = [body for path, body in self.bodies if path == "/v1/metrics"][-1]
        found: dict[str, float] = {}
        for resource in ExportMetricsServiceRequest.FromString(last).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.sum.data_points:
                        found[metric.name] = found.get(metric.name, 0) + (point.as_int or point.as_double)
        return found


def values(span) -> dict:
    return {one.key: one.value for one in span.attributes}


def traced(stub, folder) -> list:
    """The options of a traced run against a stub."""
    return ["--model", "m", "--base-url", stub.url, "--journal", folder / "journal", "--otel", "--json"]


def test_a_selection_is_a_span_for_each_case_with_its_questions_inside(tmp_path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=4)
    with ScriptedEndpoint(better_quality_wins, models=("m",)) as stub, Collector() as collector:
        words = traced(stub, tmp_path)
        words += ["--price-input", 1, "--price-output", 1]
        done = installed("select", cases, *words, **collector.variables)
        assert done.returncode == 0, done.stderr
        asked = sum("BEGIN CANDIDATE" in str(body) for body in stub.bodies)
    spans = collector.spans()
    found = {one.span_id: one for one in spans if one.name == "caps.case"}
    asks = [one for one in spans if one.name == "caps.judge"]
    assert len(found) == 2
    assert len(asks) == asked
    assert {one.parent_span_id for one in asks} == set(found)
    assert sorted(values(one)["caps.case.id"].string_value for one in found.values()) == ["case 0", "case 1"]
    assert all(values(one)["gen_ai.usage.input_tokens"].int_value > 0 for one in asks)
    sums = collector.sums()
    assert (sums["caps.cases"], sums["caps.calls"]) == (2, asked)
    assert sums["caps.usd"] > 0
    texts = (b"What is it", b"I reckon", b"quality=", b"BEGIN CANDIDATE", b"<winner>")
    assert not [text for text in texts for _, body in collector.bodies if text in body]


def test_generated_answers_are_spans_and_the_words_of_an_error_are_not_sent(tmp_path) -> None:
    def refusing(body: dict, number: int):
        return (
            Status(413, {"error": {"message": "I refuse vary"}}) if is_judge(body) else upstream(body, number)
        )

    with ScriptedEndpoint(refusing, models=("m",)) as stub, Collector() as collector:
        words = traced(stub, tmp_path)
        words += ["-n", 3]
        done = installed("solve", "vary", *words, **collector.variables)
        assert done.returncode != 0
    spans = collector.spans()
    assert sum(one.name == "caps.generate" for one in spans) == 3
    asks = [one for one in spans if one.name == "caps.judge"]
    assert asks
    assert all(values(one)["error.type"].string_value == "unanswered" for one in asks)
    assert not [body for _, body in collector.bodies if b"vary" in body or b"refuse" in body]
