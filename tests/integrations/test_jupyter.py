"""Jupyter: notebooks whose kernel lives behind walls, by `jupyter_client` and `nbclient`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from sandbox.integrations.jupyter_provisioner import SandboxProvisioner, install

pytestmark = pytest.mark.integrations


@pytest.fixture(autouse=True)
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Jupyter of the test's own, with our kernel; and a secret in the environment of the person who runs it."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_API_TOKEN", "s3cret-token")
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "project").mkdir()
    install()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[KernelManager, Any]]:
    manager = KernelManager(kernel_name="sandbox-python")
    manager.start_kernel(cwd=str(tmp_path / "project"))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def ours(manager: KernelManager) -> SandboxProvisioner:
    assert isinstance(manager.provisioner, SandboxProvisioner)
    return manager.provisioner


def run(client: Any, code: str) -> tuple[str, str]:
    """How code ended, and all that it printed."""
    printed: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        printed.append(str(message["content"].get("text", "")))

    reply = client.execute_interactive(code, timeout=120, output_hook=hook)
    return reply["content"]["status"], "".join(printed)


def test_a_notebook_runs_behind_walls(tmp_path: Path) -> None:
    cells = [
        "x = 40",
        "print(x + 2)",
        f"import os; print(os.path.exists({str(tmp_path / 'secret')!r}), 's3cret-token' in str(os.environ))",
        "open('made', 'w').write('kept')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    resources = {"metadata": {"path": str(tmp_path / "project")}}
    NotebookClient(notebook, timeout=120, kernel_name="sandbox-python", resources=resources).execute()
    assert [notebook.cells[n].outputs[0].text for n in (1, 2)] == ["42\n", "False False\n"]
    assert (tmp_path / "project" / "made").read_text() == "kept"


def test_a_kernel_is_interrupted_and_started_again(kernel: tuple[KernelManager, Any]) -> None:
    manager, client = kernel
    assert run(client, "x = 1; print(x)") == ("ok", "1\n")
    client.execute("print('begun', flush=True)\nwhile True: pass")
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["msg_type"] == "stream" and "begun" in message["content"]["text"]:
            break
    manager.interrupt_kernel()
    assert client.get_shell_msg(timeout=120)["content"]["ename"] == "KeyboardInterrupt"
    assert run(client, "print(x)")[1].endswith("1\n")
    first = ours(manager)._standing
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=120)
    assert run(client, "print('x' in globals())") == ("ok", "False\n")
    assert ours(manager)._standing is not first


def test_a_kernel_that_ends_is_seen_to_have_ended(kernel: tuple[KernelManager, Any]) -> None:
    manager, client = kernel
    assert manager.is_alive()
    client.execute("import os; os._exit(3)")
    process = ours(manager).process
    assert process is not None
    assert process.wait() == 3 and not manager.is_alive()


def test_nothing_of_it_is_left(tmp_path: Path) -> None:
    manager = KernelManager(kernel_name="sandbox-python")
    manager.start_kernel(cwd=str(tmp_path / "project"))
    sandbox = ours(manager)._standing
    assert sandbox is not None
    manager.shutdown_kernel(now=True)
    with pytest.raises(Exception, match="closed"):
        sandbox.exec("true")
    assert os.listdir(tmp_path / "project") == []


def test_a_kernel_around_the_whole_home_directory_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").touch()
    manager = KernelManager(kernel_name="sandbox-python")
    manager.log.propagate = True
    manager.start_kernel(cwd=str(tmp_path / "home"))
    manager.shutdown_kernel(now=True)
    assert "your home directory is the project" in caplog.text


SLIDER = "import ipywidgets; slider = ipywidgets.IntSlider(value=7, description='size'); slider"


def test_widgets_are_kept_in_the_notebook(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in (SLIDER, "slider.value = 8")])
    resources = {"metadata": {"path": str(tmp_path / "project")}}
    NotebookClient(notebook, timeout=120, kernel_name="sandbox-python", resources=resources).execute()
    shown = notebook.cells[0].outputs[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert state[shown]["model_name"] == "IntSliderModel" and state[shown]["state"]["value"] == 8


def test_a_widget_that_a_person_moves_moves_in_the_kernel(kernel: tuple[KernelManager, Any]) -> None:
    _, client = kernel
    opened: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        if message["msg_type"] == "comm_open" and message["content"]["data"]["state"].get("description") == "size":
            opened.append(message["content"]["comm_id"])

    assert client.execute_interactive(SLIDER, timeout=120, output_hook=hook)["content"]["status"] == "ok"
    moved = {"comm_id": opened[0], "data": {"method": "update", "state": {"value": 9}, "buffer_paths": []}}
    client.shell_channel.send(client.session.msg("comm_msg", moved))
    assert run(client, "print(slider.value)")[1].endswith("9\n")
