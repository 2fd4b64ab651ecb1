"""deploy/kubernetes: objects that the API takes, with as few rights as walls allow."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sandbox import __version__
from tests.deploy.kustomize import DEPLOY, Object, render

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
VERSIONS = ("1.33", "1.37")  # user namespaces are on by default since 1.33
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)  # 1 MB each
CUSTOM = {"ServiceMonitor", "SecurityContextConstraints", "RayCluster"}  # no schema of Kubernetes' own


def kustomization(directory: Path, *components: str, base: str = "overlays/k3s") -> Path:
    """A user's own kustomization, as docs/kubernetes.md shows it."""
    said = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(KUBERNETES / base)],
        "components": [str(KUBERNETES / "components" / one) for one in components],
    }
    directory.mkdir(exist_ok=True)
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(said))
    return directory


@pytest.fixture(params=[*OVERLAYS, *(f"with {one}" for one in COMPONENTS), "ray"])
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> list[Object]:
    """Every overlay, every component on top of one, and the Ray cluster."""
    name = str(request.param)
    if name.startswith("with "):
        return render(kustomization(tmp_path / "own", name.removeprefix("with ")))
    return render(KUBERNETES / "ray" if name == "ray" else KUBERNETES / "overlays" / name)


def pods(objects: list[Object]) -> list[Object]:
    """Every pod that is made of them, as an object of its own."""
    found = []
    for one in objects:
        spec = one.get("spec", {})
        templates = [spec.get("template")]
        if one["kind"] == "RayCluster":
            templates = [spec["headGroupSpec"]["template"], *(group["template"] for group in spec["workerGroupSpecs"])]
        found += [
            {"apiVersion": "v1", "kind": "Pod", "metadata": part["metadata"], "spec": part["spec"]}
            for part in templates
            if isinstance(part, dict)
        ]
    return found


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_one_that_the_api_takes(rendered: list[Object], version: str) -> None:
    assert {one["kind"] for one in rendered} & CUSTOM == {
        one["kind"] for one in rendered if "." in one["apiVersion"] and "k8s.io" not in one["apiVersion"]
    }
    for one in [*(one for one in rendered if one["kind"] not in CUSTOM), *pods(rendered)]:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_field_that_does_not_exist_is_found() -> None:
    server = named(render(KUBERNETES / "base"), "StatefulSet", "sandbox-server")
    server["spec"]["template"]["spec"]["hostUser"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(server, VERSIONS[0], strict=True)


def test_a_patch_that_misses_is_found(tmp_path: Path) -> None:
    own = kustomization(tmp_path / "own")
    said = yaml.safe_load((own / "kustomization.yaml").read_text())
    target = {"group": "apps", "version": "v1", "kind": "StatefulSet", "name": "sandbox-serve"}
    said["patches"] = [{"target": target, "patch": "- {op: remove, path: /spec/replicas}"}]
    (own / "kustomization.yaml").write_text(yaml.safe_dump(said))
    with pytest.raises(ValueError):
        render(own)


def test_no_pod_has_more_rights_than_walls_need(rendered: list[Object]) -> None:
    for pod in pods(rendered):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert spec["securityContext"]["seccompProfile"]["type"] != "Unconfined"
        for container in spec["containers"]:
            held = container["securityContext"]
            assert held["allowPrivilegeEscalation"] is False and not held.get("privileged")
            assert held["readOnlyRootFilesystem"] is True
            assert held["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
        if not any("hostPath" in one for one in spec["volumes"]):  # all but what installs the profile
            assert spec["securityContext"]["runAsNonRoot"] is True


def test_procmount_is_only_asked_for_in_a_user_namespace_of_the_pod(rendered: list[Object]) -> None:
    for pod in pods(rendered):
        unmasked = any(one["securityContext"].get("procMount") for one in pod["spec"]["containers"])
        assert not unmasked or pod["spec"].get("hostUsers") is False or "kata" in pod["spec"]["runtimeClassName"]


def test_the_account_has_no_role(rendered: list[Object]) -> None:
    assert not {one["kind"] for one in rendered} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    accounts = [one for one in rendered if one["kind"] == "ServiceAccount"]
    assert accounts and all(one["automountServiceAccountToken"] is False for one in accounts)
    names = {one["metadata"]["name"] for one in accounts}
    assert {pod["spec"]["serviceAccountName"] for pod in pods(rendered)} <= names


def test_no_secret_is_in_the_manifests(rendered: list[Object]) -> None:
    assert "Secret" not in {one["kind"] for one in rendered}


def test_the_image_has_this_version(rendered: list[Object]) -> None:
    images = {container["image"] for pod in pods(rendered) for container in pod["spec"]["containers"]}
    assert images <= {f"localhost/sandbox-server:{__version__}", f"localhost/sandbox-ray:{__version__}"}


def test_every_selector_finds_the_pods_that_it_means() -> None:
    objects = render(KUBERNETES / "base")
    labels = named(objects, "StatefulSet", "sandbox-server")["spec"]["template"]["metadata"]["labels"].items()
    policy = named(objects, "NetworkPolicy", "sandbox-server")["spec"]
    budget = named(objects, "PodDisruptionBudget", "sandbox-server")["spec"]
    services = [one["spec"] for one in objects if one["kind"] == "Service"]
    for selector in (
        policy["podSelector"]["matchLabels"],
        budget["selector"]["matchLabels"],
        *(one["selector"] for one in services),
    ):
        assert selector.items() <= labels
    assert len(services) == 2


def test_the_network_policy_keeps_sandboxes_from_the_cluster_and_the_clouds_metadata() -> None:
    policy = named(render(KUBERNETES / "base"), "NetworkPolicy", "sandbox-server")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    everywhere = [one["ipBlock"] for rule in policy["egress"] for one in rule["to"] if "ipBlock" in one]
    refused = {one for block in everywhere for one in block["except"]}
    assert {"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"} <= refused


def test_the_profile_on_the_nodes_is_the_one_that_pods_ask_for() -> None:
    objects = render(KUBERNETES / "overlays" / "k3s")
    (installer,) = [pod["spec"] for pod in pods([named(objects, "DaemonSet", "sandbox-seccomp")])]
    (place,) = [one["hostPath"]["path"] for one in installer["volumes"] if "hostPath" in one]
    (server,) = [pod["spec"] for pod in pods([named(objects, "StatefulSet", "sandbox-server")])]
    asked = server["securityContext"]["seccompProfile"]["localhostProfile"]
    assert f"{place}/sandbox.json" == f"/var/lib/kubelet/seccomp/{asked}"
    assert "mv /seccomp/.new /seccomp/sandbox.json" in installer["containers"][0]["args"][0]
    profile = json.loads(named(objects, "ConfigMap", "sandbox-seccomp")["data"]["sandbox.json"])
    assert profile == json.loads((DEPLOY / "seccomp" / "sandbox.json").read_text())


def allowed(profile: dict[str, Any]) -> set[str]:
    return {
        name
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("args")
        for name in rule["names"]
    }


def test_the_profile_refuses_what_it_does_not_name_and_what_reaches_the_whole_machine() -> None:
    profile = json.loads((DEPLOY / "seccomp" / "sandbox.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"unshare", "mount", "pivot_root", "sethostname", "landlock_restrict_self"} <= allowed(profile)
    reaching = (
        "bpf init_module kexec_load reboot settimeofday perf_event_open open_by_handle_at io_uring_setup userfaultfd"
    )
    assert not set(reaching.split()) & allowed(profile)
    conditions = [one for one in profile["syscalls"] if one.get("args")]
    assert [(one["names"], one["args"][0]["value"]) for one in conditions] == [(["keyctl"], 1)]


def test_the_kustomization_that_the_page_shows_works_from_a_clone(tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (shown,) = [block for block in page.split("```") if "kind: Kustomization" in block]
    said = yaml.safe_load(shown.partition("\n")[2])
    images = said.pop("images")
    assert images[0]["name"] == "localhost/sandbox-server" and images[0]["newTag"] == __version__
    (tmp_path / "sandbox").symlink_to(DEPLOY.parent)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(said))
    assert named(render(tmp_path), "HorizontalPodAutoscaler", "sandbox-server")


# -- Kustomize itself, where there is one


def kustomize() -> list[str] | None:
    """What renders a directory: 5 or later, which `components` and our patches need."""
    for words in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(words[0]) is None:
            continue
        asked = subprocess.run([words[0], "version", *(["--client"] if words[0] == "kubectl" else [])],
                               capture_output=True, text=True, check=False)  # fmt: skip
        if any(f"v{major}." in asked.stdout.split("Kustomize Version:")[-1] for major in (5, 6)):
            return words
    return None


@pytest.mark.parametrize("name", [*(f"overlays/{one}" for one in OVERLAYS), "base", "ray"])
def test_kustomize_renders_the_same(name: str) -> None:
    words = kustomize()
    if words is None:
        pytest.skip("kustomize 5 is not installed")
    done = subprocess.run([*words, str(KUBERNETES / name)], capture_output=True, text=True, check=True)
    assert by_name(yaml.safe_load_all(done.stdout)) == by_name(render(KUBERNETES / name))


def by_name(objects: Any) -> dict[tuple[str, str], Object]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}
