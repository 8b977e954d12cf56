"""What a user may set for a run: `RunConfig`, what an option is, and where settings come from."""

from caps.config.run_config import (
    JUDGING,
    PRICES,
    REWARD_APIS,
    Keys,
    RunConfig,
    command_words,
    find_option,
    identity,
    options,
    options_by_alias,
    path_options,
    per_request_options,
    read_judges,
    read_values,
)

__all__ = [
    "JUDGING", "PRICES", "REWARD_APIS", "Keys", "RunConfig", "command_words", "find_option", "identity",
    "options", "options_by_alias", "path_options", "per_request_options", "read_judges", "read_values",
]  # fmt: skip
