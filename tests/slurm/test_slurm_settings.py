"""Launcher settings: what no cell can use is refused with what to type, and what goes to sbatch is what was meant."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from odd import typed_fields
from otil_exp.slurm.resources import Resources
from otil_exp.slurm.script import PASSED, executor_for, log_of, script_of
from otil_exp.slurm.settings import SlurmSettings, check_settings, job_folder

FOUR_RANKS = Resources(nodes=1, tasks_per_node=4, gpus_per_node=4, cpus_per_task=None)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gpus_per_task": 1}, "hydra.launcher.gpus_per_task=1: leave it out"),
        ({"cpus_per_gpu": 4}, "use hydra.launcher.cpus_per_task=N"),
        ({"gres": "gpu:l40s:4"}, "hydra.launcher.gpu_type=TYPE"),
        ({"pack": 0}, "use 1 or more"),
        ({"nodes": -1}, "nodes=-1: use 1 or more"),
        ({"nodes": 0}, "nodes=0: use 1 or more"),
        ({"signal_delay_s": -5}, "signal_delay_s=-5: use 1 or more"),
        ({"poll_s": -1.0}, "poll_s=-1.0: use a number of seconds above 0"),
        ({"poll_s": math.nan}, "poll_s=nan"),
        ({"timeout_min": 2}, "signal_delay_s=120 .* use a timeout_min above 3"),
        ({"additional_parameters": {"gpus_per_node": 2}}, "additional_parameters.gpus_per_node=2: leave it out"),
        ({"additional_parameters": {"time": 5}}, "timeout_min=N"),
        ({"additional_parameters": {"dependency": "afterok:1?afterok:2"}}, "after_reference=false"),
        ({"submitit_folder": "/data/100%jobs/grid/.submitit/%j"}, "FOLDER without %"),
        ({"submitit_folder": "/data/%A/%j"}, "FOLDER without %"),
    ],
)
def test_settings_that_no_cell_can_use_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_settings(SlurmSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "values"), list(typed_fields(SlurmSettings)))
def test_odd_values_are_refused_in_a_sentence_or_make_a_script(
    key: str, values: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every field, hydra-submitit-launcher's own as well."""
    monkeypatch.setattr("submitit.slurm.slurm.SlurmExecutor.affinity", staticmethod(lambda: 2))  # whether srun is here
    monkeypatch.chdir(tmp_path)
    for value in values:
        schema = OmegaConf.structured(SlurmSettings)
        try:
            OmegaConf.update(schema, "name", "mine")
            OmegaConf.update(schema, "submitit_folder", str(tmp_path / "%j"))
            OmegaConf.update(schema, key, value, merge=True)
            settings = OmegaConf.to_object(schema)
            assert isinstance(settings, SlurmSettings)
            check_settings(settings)
        except (ValueError, OmegaConfBaseException) as error:
            assert str(error)  # noqa: PT017
            continue
        settings.submitit_folder = job_folder(settings.submitit_folder)
        assert "#SBATCH" in script_of(FOUR_RANKS, settings, 2), value


def test_the_defaults_and_a_folder_of_ones_own_are_taken() -> None:
    check_settings(SlurmSettings())
    check_settings(SlurmSettings(submitit_folder="/data/mine"))
    check_settings(SlurmSettings(submitit_folder="/data/%j/logs"))


def test_every_job_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs that shared one took each other's ranks."""
    monkeypatch.chdir("/usr")
    assert job_folder("/data/mine") == "/data/mine/%j"
    assert job_folder("mine/%j/logs") == "/usr/mine/%j/logs"


def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: list[str], **settings: object) -> list[str]:
    """Options of the batch script, one #SBATCH line each."""
    monkeypatch.setattr("submitit.slurm.slurm.SlurmExecutor.affinity", staticmethod(lambda: 2))  # whether srun is here
    typed = SlurmSettings(submitit_folder=f"{tmp_path}/%j", **settings)  # type: ignore[arg-type]
    text = executor_for(FOUR_RANKS, typed, after)._executor._make_submission_file_text("true", "uid")  # type: ignore[attr-defined]
    return [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_a_dependency_of_the_users_stands_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: dict[str, object] = {"additional_parameters": {"dependency": "singleton"}}
    assert "dependency=singleton,afterany:7:8" in script(tmp_path, monkeypatch, ["7", "8"], **theirs)
    assert "dependency=singleton" in script(tmp_path, monkeypatch, [], **theirs)
    assert "dependency=afterany:7" in script(tmp_path, monkeypatch, ["7"])
    assert not [line for line in script(tmp_path, monkeypatch, []) if line.startswith("dependency")]


def test_jobs_may_be_requeued_unless_the_user_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "requeue" in script(tmp_path, monkeypatch, [])
    never = script(tmp_path, monkeypatch, [], additional_parameters={"no_requeue": True})
    assert "no-requeue" in never
    assert "requeue" not in never


def test_settings_of_ours_never_reach_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = set(SlurmSettings.__annotations__)
    assert ours & PASSED == {"name"}  # of the jobs, with another default
    found = {line.partition("=")[0].replace("-", "_") for line in script(tmp_path, monkeypatch, [])}
    assert not found & (ours - {"nodes"})
    assert "time=60" in script(tmp_path, monkeypatch, [])


def test_logs_are_looked_for_where_they_are_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = SlurmSettings(submitit_folder=f"{tmp_path}/%j")
    assert f"error={log_of('%j', apart)}" in script(tmp_path, monkeypatch, [])
    one = SlurmSettings(submitit_folder=f"{tmp_path}/%j", stderr_to_stdout=True)
    together = script(tmp_path, monkeypatch, [], stderr_to_stdout=True)
    assert f"output={log_of('%j', one)}" in together
    assert not [line for line in together if line.startswith("error=")]
