"""What holds for all tests: none fails because the machine is busy, and what takes long begins first."""

from hypothesis import HealthCheck, settings

#: Where processes are started and waited for; the rest is quick and fills the gaps at the end.
LONG = {"cli", "crash", "test_docs.py", "test_doctor.py", "test_process.py"}

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
