"""The address of an endpoint as people write it."""

from yarl import URL

from caps.core.errors import SettingError
from caps.core.secrets import shown_address


def parse_base(base_url: str) -> URL:
    """A base URL; without a path `/v1` is meant, and the path of chat completions is taken off."""
    words = base_url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        url = URL(words)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingError(
            "the base URL must look like http://localhost:8000/v1 or https://host/v1"
            f", not {shown_address(base_url).rpartition('@')[2]!r}"
        )
    return url if url.path.strip("/") else url.with_path("/v1", keep_query=True)
