"""`python -m otil_exp.tracking.dashboard ENTITY/PROJECT`: a W&B workspace with the comparisons people make first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Mapping

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from otil_exp.method_style import style_of

METHOD = wr.Config("facts.method")
"""preset.name after normalisation: what really ran."""

CHOICES = {
    "method": METHOD,
    "topology": wr.Config("facts.topology.name"),
    "k": wr.Config("facts.effective.k"),
    "refresh": wr.Config("facts.effective.refresh_period"),
}
OUTCOMES = {
    "ms / step": wr.SummaryMetric("latency/step_ms"),
    "bytes / step": wr.SummaryMetric("traffic/bytes_sent_per_step"),
    "PSNR dB": wr.SummaryMetric("ref/psnr"),
    "LPIPS": wr.SummaryMetric("ref/lpips_alex"),
    "perceptual (EfficientNet)": wr.SummaryMetric("ref/effnet_lite0_5stage"),
    "seam, levels": wr.SummaryMetric("ref/step_levels"),
}


def workspace(
    entity: str, project: str, methods: Mapping[str, str], prompts: int, references: Container[str] = ()
) -> ws.Workspace:
    """The dashboard, not saved yet.

    methods: method of every run by run id, for its colour; references: ids of those that are no method; prompts: how
    many rows.
    """
    colours = {run: style_of(method, is_reference=run in references).colour for run, method in methods.items()}
    return ws.Workspace(
        entity=entity,
        project=project,
        name="otil_exp: methods compared",
        sections=[_trade_offs(), _choices(), _seams(), _steps(), _pictures(prompts)],
        runset_settings=ws.RunsetSettings(run_settings={run: ws.RunSettings(color=c) for run, c in colours.items()}),
    )


def _trade_offs() -> ws.Section:
    quality = ("PSNR dB", "LPIPS", "perceptual (EfficientNet)", "seam, levels")
    panels = [
        wr.ScatterPlot(title=f"{cost} against {name}, coloured by method", x=OUTCOMES[cost], y=OUTCOMES[name])
        for cost in ("ms / step", "bytes / step")
        for name in quality
    ]
    return ws.Section(name="Speed against quality", panels=panels, is_open=True)


def _choices() -> ws.Section:
    columns = [
        wr.ParallelCoordinatesPlotColumn(metric=metric, display_name=name)
        for name, metric in (CHOICES | OUTCOMES).items()
    ]
    plot = wr.ParallelCoordinatesPlot(title="k, refresh and topology", columns=columns)
    plot.layout = wr.Layout(w=24, h=10)
    return ws.Section(name="What the choices do", panels=[plot], is_open=True)


def _seams() -> ws.Section:
    metrics = {"ref/step_levels": "step at the seam that the reference has not, levels", "seam/band_z": "band z"}
    panels = [
        wr.BarPlot(title=title, metrics=[metric], groupby=METHOD, groupby_aggfunc="mean", groupby_rangefunc="stderr")
        for metric, title in metrics.items()
    ]
    return ws.Section(name="Seams by method", panels=panels, is_open=True)


def _steps() -> ws.Section:
    panels = [
        wr.LinePlot(title=title, x="step/count", y=[metric], title_y=unit)
        for metric, title, unit in (
            ("step/ms", "time of every step", "ms"),
            ("step/bytes_sent", "traffic of every step", "B"),
        )
    ]
    return ws.Section(name="Steps", panels=panels, is_open=False)


def _pictures(prompts: int) -> ws.Section:
    """A panel a prompt: the pictures of all runs, with their seams marked, and their differences."""
    panels = [
        wr.MediaBrowser(
            title=f"prompt {i:02d}",
            media_keys=[f"{what}/{i:02d}" for what in ("picture", "marked", "difference")],
            num_columns=4,
        )
        for i in range(prompts)
    ]
    return ws.Section(name="Pictures by prompt", panels=panels, is_open=True)


def main(argv: list[str] | None = None) -> int:
    """Build and save it, or print it; returns the exit code."""
    parser = argparse.ArgumentParser("python -m otil_exp.tracking.dashboard", description=__doc__)
    parser.add_argument("project", metavar="ENTITY/PROJECT")
    parser.add_argument("--prompts", type=int, default=10, help="rows of pictures (default 10)")
    parser.add_argument("--spec", action="store_true", help="print the specification as JSON; needs no account")
    parsed = parser.parse_args(argv)
    entity, _, project = parsed.project.partition("/")
    if not entity or not project:
        print(f"{parsed.project}: use ENTITY/PROJECT, such as my-team/otil_exp", file=sys.stderr)
        return 1
    if parsed.spec:
        print(workspace(entity, project, {}, parsed.prompts)._to_model().model_dump_json(by_alias=True, indent=2))
        return 0
    runs = wandb.Api().runs(f"{entity}/{project}")
    facts = {run.id: run.config["facts"] for run in runs if "facts" in run.config}
    methods = {run: fact["method"] for run, fact in facts.items()}
    references = {run for run, fact in facts.items() if fact.get("is_reference")}
    print(workspace(entity, project, methods, parsed.prompts, references).save().url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
