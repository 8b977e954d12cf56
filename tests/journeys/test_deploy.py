"""The files of deploy/ fit the program: options, ports, paths and variables that they name exist."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from caps.cli.main import make_app
from caps.server.app import _routes
from caps.server.handlers import Handlers

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVE = get_command(make_app("serve")).commands["serve"]
PORT = next(one.default for one in SERVE.params if one.name == "port")
PROBE = re.compile(r"http://127\.0\.0\.1:(\d+)(/\w+)")


@pytest.fixture(scope="module")
def image():
    """The last instruction of each kind in the Containerfile."""
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split(" ", 1) for line in lines)


def paths():
    return {route.path for route in _routes(Handlers(log=None, metrics=None, heartbeat=1.0))}


def check_words(words):
    """The words of a command line are options of `caps serve`, with values where they need one."""
    SERVE.make_context("serve", [str(word) for word in words], resilient_parsing=False)


def test_the_image_serves_as_a_user_that_is_not_root_and_is_probed_for_life(image):
    command = json.loads(image["ENTRYPOINT"])
    assert command[:2] == ["caps", "serve"]
    check_words(command[2:])
    assert int(image["EXPOSE"]) == int(command[command.index("--port") + 1]) == PORT
    assert int(image["USER"].partition(":")[0]) > 0
    port, path = PROBE.search(image["HEALTHCHECK"]).groups()
    assert (int(port), path) == (PORT, "/live")
    assert path in paths()


def test_only_what_the_package_is_built_from_goes_into_the_image():
    root = DEPLOY.parent
    lines = (root / ".containerignore").read_text().split("\n")
    assert "*" in lines
    assert all((root / line[1:]).exists() for line in lines if line.startswith("!"))


def test_the_compose_file_fits_the_image_and_the_program(image):
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    caps, llama = services["caps"], services["llama"]
    check_words([*json.loads(image["ENTRYPOINT"])[2:], *caps["command"]])
    given = dict(zip(llama["command"][::2], llama["command"][1::2], strict=True))
    upstream = caps["command"][caps["command"].index("--base-url") + 1]
    assert upstream == f"http://llama:{given['--port']}/v1"
    assert caps["command"][caps["command"].index("--max-connections") + 1] == given["--parallel"]
    assert caps["ports"] == [f"{PORT}:{PORT}"]
    assert caps["read_only"] is True
    assert (DEPLOY / caps["build"]["context"] / caps["build"]["dockerfile"]).is_file()
    assert PROBE.search(caps["healthcheck"]["test"][-1]).groups() == (str(PORT), "/live")
    known = {
        name
        for one in SERVE.params
        for name in ([one.envvar] if isinstance(one.envvar, str) else one.envvar or ())
    }
    assert set(caps["environment"]) <= known


def test_the_kubernetes_example_fits_the_image_and_the_program(image):
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (caps,) = pod["containers"]
    check_words([*json.loads(image["ENTRYPOINT"])[2:], *caps["args"]])
    assert caps["ports"] == [{"name": "http", "containerPort": PORT}]
    probes = {name: caps[name]["httpGet"]["path"] for name in caps if name.endswith("Probe")}
    assert probes == {"livenessProbe": "/live", "readinessProbe": "/ready", "startupProbe": "/live"}
    assert set(probes.values()) <= paths()
    assert {caps[name]["httpGet"]["port"] for name in probes} == {"http"}
    assert pod["securityContext"]["runAsNonRoot"]
    assert caps["securityContext"]["readOnlyRootFilesystem"]
    assert pod["terminationGracePeriodSeconds"] > float(caps["args"][caps["args"].index("--grace") + 1])
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert {one["name"] for one in caps["env"]} <= {"CAPS_SERVER_API_KEY", "CAPS_API_KEY"}


def test_the_systemd_unit_calls_the_program_and_waits_for_its_requests():
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "caps.service").read_text(), re.MULTILINE))
    program, command, *words = shlex.split(unit["ExecStart"])
    assert (Path(program).name, command, words[0]) == ("caps", "serve", "--config")
    grace = next(one.default for one in SERVE.params if one.name == "grace")
    assert int(unit["TimeoutStopSec"]) > grace
