"""Joining a Ray cluster: the only place that knows the package `ray`."""

import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

from caps.core.errors import MissingExtraError, SettingError

KNOCK_SECONDS = 5.0
HERE = (None, "", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where workers run: a cluster's address, or one that is started on this machine; and how many."""

    address: str | None = None
    workers: int = 2


def connect(cluster: Cluster) -> Any:
    """Join the cluster, or start one here, unless that was done before; the package `ray`."""
    if cluster.address not in HERE:
        _knock(str(cluster.address))
    try:
        import ray  # noqa: PLC0415
        import ray.data.datasource  # noqa: PLC0415
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("ray", "ray", "the engine 'ray'") from None
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if cluster.address in HERE:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a run tells nobody about itself
            ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=cluster.address, **quiet)
    except Exception as error:  # of many kinds, plain ones among them
        said = str(error).partition(". ")[0].partition("\n")[0]
        what = "cannot start one here" if cluster.address in HERE else f"cannot join {cluster.address!r}"
        raise SettingError(f"--ray-address: Ray {what} ({said})") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray tells of dead workers on standard output, where results go; there is no public switch for it.
    ray._private.worker._worker_logs_enabled = False
    return ray


def on_this_machine(ray: Any) -> Any:
    """Where something has to run that needs this machine's files."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return affinity(ray.get_runtime_context().get_node_id(), soft=False)


def _knock(address: str) -> None:
    """Refuse an address where nobody is: Ray itself would try for minutes, and then end the process."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise SettingError(
            f"--ray-address {address!r}: a Ray client cannot keep the journal: run caps on a machine of the "
            "cluster, with its address as HOST:PORT, or auto"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingError(
            f"--ray-address {address!r}: must be HOST:PORT, or auto for the one on this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"--ray-address {address!r}: nobody answers there ({error}): start one with  ray start --head"
        ) from None
