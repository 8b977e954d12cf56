"""How much clients may ask for."""

from dataclasses import dataclass

from caps.core.settings import check_settings, setting

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings; a request beyond one is refused, except that time which ends brings the answer so far."""

    n: int = setting(32, "samples of a request, or candidates of a case", least=1)
    body: int = setting(16 * MIB, "bytes of a body", least=1)
    bodies: int = setting(512 * MIB, "bytes of all bodies held at once", least=1)
    concurrent: int = setting(256, "requests worked on at once", least=1)
    waiting: int = setting(1024, "requests that may wait for their turn", least=0)
    seconds: float = setting(600.0, "of a request, its wait included", least=0.1)
    reading: float = setting(30.0, "seconds in which a request must be sent", least=0.1)
    tokens: int = setting(0, "a judge may read and write for a request; 0 is no limit", least=0)

    def __post_init__(self) -> None:
        check_settings(self)
