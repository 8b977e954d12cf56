"""Patches and runs of agents for caps."""

from caps_agents.domains import PATCH, TRAJECTORY, patches_in, runs_in

__all__ = ["PATCH", "TRAJECTORY", "patches_in", "runs_in"]
