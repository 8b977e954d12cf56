"""Untrusted programs run under limits, without network, files or time to spare.

The names below are the part that plug-ins may use.
"""

from caps.core.text import escaped
from caps.sandbox.base import PYTHON, Job, JobResult, Language, Limits
from caps.sandbox.launchers import find_sandbox
from caps.sandbox.runner import Sandbox

__all__ = ["PYTHON", "Job", "JobResult", "Language", "Limits", "Sandbox", "escaped", "find_sandbox"]
