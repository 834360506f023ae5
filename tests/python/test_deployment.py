"""docker/, k8s/ and deploy/: as far as that goes without a container engine and a cluster."""
import pathlib
import re
import shutil
import subprocess

import pytest

from lmdeploy.__main__ import find_program

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTED_COMMAND = "lmdeploy serve api_server"


@pytest.fixture(scope="module")
def manifests():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: k8s/ is not read")
    return [(path.name, manifest) for path in sorted((ROOT / "k8s").glob("*.yaml"))
            for manifest in yaml.safe_load_all(path.read_text())]


def of_kind(manifests, kind):
    return next(manifest for _, manifest in manifests if manifest["kind"] == kind)


def seconds_of(args, flag):
    return next(int(arg.removeprefix(flag + "=")) for arg in args if arg.startswith(flag + "="))


def refused_flags(flags):
    """What the program says of flags that it does not know; a model that is not there comes after that."""
    done = subprocess.run([str(find_program()), "serve", "api_server", "/nowhere", *flags], capture_output=True,
                          text=True, timeout=60)
    return None if "/nowhere" in done.stderr else done.stderr


def test_manifests_fit_their_schemas(manifests):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for name, manifest in manifests:
        try:
            validate.validate(manifest, "1.31", strict=True)
        except validate.ValidationError as error:
            pytest.fail(f"{name}, {manifest['kind']}: {error}")


def test_what_belongs_together_has_one_name(manifests):
    deployment, service, claim = (of_kind(manifests, kind) for kind in
                                  ("Deployment", "Service", "PersistentVolumeClaim"))
    pod = deployment["spec"]["template"]
    container, = pod["spec"]["containers"]
    port, = container["ports"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    assert seconds_of(container["args"], "--server-port") == port["containerPort"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    scaler = of_kind(manifests, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaler["spec"]["metrics"][0]["pods"]["metric"]["name"] == "lmdeploy_num_requests_waiting"


def test_the_pod(manifests):
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert " ".join(container["command"]) == DOCUMENTED_COMMAND
    assert refused_flags(container["args"][1:]) is None
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "main"}
    drain = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= drain + seconds_of(container["args"], "--shutdown-timeout") + 5
    assert container["resources"]["limits"]["nvidia.com/gpu"] == container["resources"]["requests"]["nvidia.com/gpu"]
    assert pod["securityContext"]["runAsNonRoot"] and not container["securityContext"]["allowPrivilegeEscalation"]


def test_the_token_is_a_secret_at_its_documented_place(manifests):
    text = (ROOT / "k8s" / "deployment.yaml").read_text()
    assert text.count("{{HUGGING_FACE_HUB_TOKEN}}") == 2  # where the sed command of the documentation looks; once here
    secret = of_kind(manifests, "Secret")
    assert secret["stringData"] == {"token": "{{HUGGING_FACE_HUB_TOKEN}}"}
    container, = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    token, = (entry for entry in container["env"] if entry["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": secret["metadata"]["name"], "key": "token"}


def stages_of(dockerfile: str) -> dict[str, list[tuple[str, str]]]:
    """Stage to its instructions; its own FROM comes first."""
    joined = re.sub(r"\\\n(?:\s*#.*\n)*", " ", dockerfile)
    stages, current = {"": []}, ""
    for line in joined.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            image, _, name = rest.partition(" AS ")
            current = name or "last"
            assert current not in stages
            stages[current] = [("FROM", image)]
        else:
            stages[current].append((instruction, rest.strip()))
    return stages


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_dockerfile(device):
    stages = stages_of((ROOT / "docker" / "Dockerfile").read_text())
    known = {"FROM", "ARG", "RUN", "COPY", "ADD", "ENV", "WORKDIR", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert stages[""] == [("ARG", "DEVICE=cpu")]
    seen = set()
    for name, instructions in list(stages.items())[1:]:
        assert {instruction for instruction, _ in instructions} <= known
        for instruction, rest in instructions:
            sources = [rest] if instruction == "FROM" else re.findall(r"--from=(\S+)", rest)
            for source in sources:
                source = source.replace("${DEVICE}", device)
                assert source in seen or source == "debian:12-slim", (name, source)
            if instruction == "COPY" and "--from" not in rest and rest != ". .":
                assert (ROOT / rest.split()[0]).exists()
            if "apt-get install" in rest:
                assert "apt-get update" in rest and "--no-install-recommends" in rest
                assert "rm -rf /var/lib/apt/lists/*" in rest
        seen.add(name)
    last = dict(stages["last"])
    assert last["USER"].startswith("10001") and "/health" in last["HEALTHCHECK"] and last["EXPOSE"] == "23333"
    assert "ENTRYPOINT" not in last  # the documented command names the program


def test_dockerignore_leaves_out_what_git_does():
    ignored = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().split()
    for line in (ROOT / ".gitignore").read_text().split():
        if line.startswith("/"):
            assert line.strip("/") in ignored or line.startswith("/.cache"), line


@pytest.fixture(scope="module")
def unit():
    return (ROOT / "deploy" / "lmdeploy.service").read_text()


def test_unit(unit):
    command = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1]
    assert command.startswith("/usr/local/bin/" + DOCUMENTED_COMMAND)
    timeout = int(re.search(r"--shutdown-timeout (\d+)", command)[1])
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[1]) >= timeout + 5
    assert refused_flags(["--shutdown-timeout", str(timeout)]) is None


def test_unit_as_systemd_reads_it(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    path = tmp_path / "lmdeploy.service"
    path.write_text(unit.replace("/usr/local/bin/lmdeploy", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if "lmdeploy.service" in line]
    assert not complaints, done.stderr
