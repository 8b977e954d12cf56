"""Who takes part, and how each is driven."""

from dataclasses import dataclass

# optillm asks for torch, spaCy, gradio and thirty more; its proxy starts with these.
PROXY = ("openai", "flask", "cerebras_cloud_sdk", "numpy", "networkx", "z3-solver<=4.15.4.0", "math-verify")
PROXY_MORE = ("aiohttp", "PyYAML", "requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A way to select: who does it, what it asks, and on how many of the cases it is run."""

    name: str
    asks: str
    driver: str
    options: tuple[str, ...] = ()
    environment: str = ""
    packages: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    share: float = 1.0
    ours: bool = False

    @property
    def label(self) -> str:
        """A name for a table."""
        return f"caps: {self.name}" if self.ours else self.name

    @property
    def package(self) -> str:
        """What it is on the registry, without extras."""
        return (self.bare or self.packages or ("",))[0].partition("[")[0]


def _ours(name: str, asks: str) -> Peer:
    return Peer(name=name, asks=asks, driver="drive_caps.py", options=(name,), ours=True)


def _naive(name: str, share: float) -> Peer:
    return Peer(
        name=f"a script: {name}",
        asks="pairs",
        driver="drive_naive.py",
        options=(name,),
        environment="script",
        packages=("openai",),
        share=share,
    )


def _verifier(name: str, evaluations: int, share: float) -> Peer:
    return Peer(
        name=name,
        asks="pairs",
        driver="drive_llm_verifier.py",
        options=(str(evaluations),),
        environment="llm-verifier",
        packages=("llm-verifier",),
        share=share,
    )


ROSTER = (
    _ours("caps-r", "pairs"),
    _ours("posterior", "pairs"),
    _ours("sprint", "pairs"),
    _ours("v1-infer", "pairs"),
    _ours("pointwise", "ratings"),
    _naive("knockout", 1.0),
    _naive("round-robin", 0.25),
    _verifier("llm-verifier, one evaluation", 1, 0.25),
    _verifier("llm-verifier as it comes", 4, 0.05),
    Peer(
        name="its_hub best-of-n",
        asks="ratings",
        driver="drive_its_hub.py",
        environment="its_hub",
        packages=("its_hub[lm]",),
    ),
    Peer(
        name="optillm best-of-n",
        asks="ratings",
        driver="drive_optillm.py",
        environment="optillm",
        packages=(*PROXY, *PROXY_MORE),
        bare=("optillm",),
    ),
)
