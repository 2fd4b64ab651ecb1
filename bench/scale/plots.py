"""The pictures of docs/scale.md, as SVG. Needs matplotlib, which only `make scale` installs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().parents[2] / "docs" / "images"


def draw(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "scale", "svg.fonttype": "none", "font.size": 9})
    PLACE.mkdir(exist_ok=True)
    for name, picture in (("limits", _limits), ("knee", _knee), ("loss", _loss), ("agreement", _agreement)):
        if name == "agreement" and "compared" not in results:
            continue
        _save(f"scale-{name}", picture, results)


def _save(name: str, picture: Any, results: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    picture(axes, results)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLACE / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def _limits(axes: Any, results: dict[str, Any]) -> None:
    found = dict(sorted(results["limits"].items(), key=lambda one: -one[1]))
    bars = axes.barh(list(found), list(found.values()), color=["#9aa5b1"] * (len(found) - 1) + ["#c0392b"])
    axes.bar_label(bars, [f"{rate:,.0f}/s" for rate in found.values()], padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("sandboxes a second at which the part is full (10,000 nodes, 16 schedulers)")


def _knee(axes: Any, results: dict[str, Any]) -> None:
    rates = [one["rate"] for one in results["sweep"]]
    axes.plot(rates, [1000 * one["median"] for one in results["sweep"]], "o-", color="#2c3e50", label="median")
    axes.plot(rates, [1000 * one["p99"] for one in results["sweep"]], "s--", color="#c0392b", label="99th percentile")
    axes.axvline(min(results["limits"].values()), color="#9aa5b1", linestyle=":")
    axes.set_yscale("log")
    axes.set_xlabel("sandboxes asked for a second")
    axes.set_ylabel("ms until it runs")
    axes.legend(frameon=False)


def _loss(axes: Any, results: dict[str, Any]) -> None:
    told = results["loss"]
    bars = axes.bar([f"{one['share']:.0%}" for one in told], [one["p99"] for one in told], color="#2c3e50", width=0.5)
    axes.bar_label(bars, [f"{one['again']:,} again, {one['lost']:,} lost" for one in told], padding=2, fontsize=7)
    axes.set_xlabel("share of the nodes that is lost at once")
    axes.set_ylabel("s until it runs, 99th pct.")


def _agreement(axes: Any, results: dict[str, Any]) -> None:
    told = results["compared"]
    clients = [one["clients"] for one in told]
    measured = [one["measured"] for one in told]
    axes.plot(clients, measured, "o-", color="#2c3e50", label="three real servers")
    axes.plot(clients, [one["simulated"] for one in told], "s--", color="#c0392b", label="simulation")
    axes.fill_between(
        clients, [0.7 * one for one in measured], [1.3 * one for one in measured], color="#2c3e50", alpha=0.1
    )
    axes.set_xlabel("clients, each one sandbox after the other")
    axes.set_ylabel("sandboxes a second")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
