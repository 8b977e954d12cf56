"""OpenTelemetry: the spans of a selection in the pipeline of your program, here printed; no prompts in them.

CAPS_MODEL=qwen3-14b CAPS_BASE_URL=http://localhost:8000/v1 python examples/integrations/otel_spans.py
"""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import caps


def main() -> None:
    """Select inside a span of the program; the spans of caps are its children."""
    provider = TracerProvider()
    provider.add_span_processor(
        SimpleSpanProcessor(
            ConsoleSpanExporter(formatter=lambda span: f"{span.name} {dict(span.attributes)}\n")
        )
    )
    trace.set_tracer_provider(provider)
    answers = [f"With quality={n / 10} it is \\boxed{{{390 + n}}}" for n in range(1, 5)]
    with trace.get_tracer("shop").start_as_current_span("answer a customer"):
        chosen = caps.best_sync("What is 17 * 23?", answers, domain="math", otel=True)
    print("chosen:", chosen.text)


if __name__ == "__main__":
    main()
