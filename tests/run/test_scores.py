"""Scores of a run folder made by hand: against the reference beside it, however the pictures are shared out."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from otil_exp.config import MetricsConfig
from otil_exp.metrics import ground_truth
from otil_exp.metrics.extractors import load_extractor
from otil_exp.run.scores import Share, is_scored, score_run
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import References, find_reference
from otil_exp.run_folder.steps import StepRow

SIDE = 64
ALL = MetricsConfig(
    psnr=True,
    ssim=True,
    perceptual="effnet_lite0_5stage",
    seams=True,
    extractors=["shapes_classifier"],
    ground_truth="renders",
    text_image="shapes_text_image",
)


def grey(level: int) -> Image.Image:
    return Image.new("RGB", (SIDE, SIDE), (level, level, level))


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


CAPTION = "a large red circle on the left of a sky gradient"


def run_folder(
    path: Path, method: str, draw: Callable[[int], Image.Image], pictures: int = 2, key: str = "k"
) -> RunFolder:
    folder = RunFolder(path)
    prompts = [{"index": i, "text": CAPTION, "seed": i} for i in range(pictures)]
    alone = method == "reference"
    topology = {"name": "1gpu", "world_size": 1} if alone else {"name": "2gpu_nosplit", "world_size": 2}
    folder.update_record(
        status="done",
        method=method,
        is_reference=alone,
        picture_key=key,
        prompts=prompts,
        signature=path.name,
        topology=topology | {"split_batch": False},
        seams={"rows": [] if alone else [SIDE // 2], "columns": []},
    )
    folder.write_config({"height": SIDE, "width": SIDE})
    for prompt in range(pictures):
        folder.write_image(prompt, draw(prompt))
    row = StepRow(rank=0, prompt=0, step=0, kind="steady", ms=1.0, bytes_sent=10, collectives=1)
    folder.write_steps([row])
    return folder


def score(
    folder: RunFolder, settings: MetricsConfig, world_size: int = 1, before: Callable[[int], None] = lambda rank: None
) -> dict[str, Any]:
    """Score as `world_size` ranks would, each in a thread of its own that waits for the others where ranks do."""
    meet, values = threading.Barrier(world_size), [None] * world_size

    def swap(rank: int, value: Any) -> list[Any]:
        values[rank] = value
        meet.wait(timeout=60)
        found = list(values)
        meet.wait(timeout=60)
        return found

    def run(rank: int) -> None:
        def gather(value: Any) -> list[Any]:
            found = swap(rank, value)
            return found if rank == 0 else []

        def agree(make: Callable[[], Any]) -> Any:
            return swap(rank, make() if rank == 0 else None)[0]

        before(rank)
        try:
            score_run(folder, settings, Share(rank, world_size, gather, agree))
        except BaseException:
            meet.abort()
            raise

    with ThreadPoolExecutor(world_size) as pool:
        list(pool.map(run, range(world_size)))
    return folder.metrics


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Features of ground truth are kept in a folder of this test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_a_run_is_compared_with_the_reference_beside_it(tmp_path: Path) -> None:
    """One grey level off in one picture, two in the other: 48.1308 and 42.1102 dB, mean 45.1205, error 6.0206 / 2."""
    run_folder(tmp_path / "another", "reference", lambda _: grey(0), key="another model")
    run_folder(tmp_path / "ref", "reference", lambda _: grey(100))
    folder = run_folder(tmp_path / "run", "otil", lambda i: grey(101 + i))
    entry = score(folder, MetricsConfig(psnr=True))["ref/psnr"]
    assert entry["value"] == pytest.approx(45.1205, abs=1e-4)
    assert entry["standard_error"] == pytest.approx(3.0103, abs=1e-4)
    assert entry["per_image"] == pytest.approx({"00": 48.1308, "01": 42.1102}, abs=1e-4)
    assert (entry["unit"], entry["n"], entry["identical"]) == ("dB", 2, 0)


def test_identical_pictures_are_capped_and_counted(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", noise)
    metrics = score(run_folder(tmp_path / "run", "otil", noise), ALL)
    assert (metrics["ref/psnr"]["value"], metrics["ref/psnr"]["identical"]) == (100, 2)
    assert metrics["ref/ssim"]["value"] == pytest.approx(1)
    assert metrics["ref/effnet_lite0_5stage"]["value"] == 0
    assert metrics["frechet_shapes/orig"]["value"] == pytest.approx(0, abs=1e-9)
    assert metrics["ref/step_levels"]["value"] == 0
    assert metrics["seam/step_levels"]["value"] == metrics["reference/step_levels"]["value"]
    assert metrics["seam/step_levels"]["boundaries"] == ["row 32"]


def test_results_do_not_depend_on_how_the_pictures_are_shared_out(tmp_path: Path) -> None:
    """5 pictures over 1, 2 and 4 ranks, and over 7, of which two have none: the same file, to the last digit."""
    run_folder(tmp_path / "ref", "reference", lambda i: noise(100 + i), pictures=5)
    folder = run_folder(tmp_path / "run", "otil", noise, pictures=5)
    texts = []
    for world_size in (1, 2, 4, 7):
        (folder.path / "metrics.json").unlink(missing_ok=True)
        texts.append(json.dumps(score(folder, ALL, world_size)))
    assert len(set(texts)) == 1
    assert json.loads(texts[0])["frechet_shapes/gt"]["n"] == 5


def test_without_a_reference_the_metric_says_what_to_run(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", lambda _: grey(100)).update_record(status="failed")
    folder = run_folder(tmp_path / "run", "otil", noise)
    assert find_reference(folder) is None
    metrics = score(folder, ALL)
    assert metrics["ref/psnr"]["value"] is None
    assert "preset=reference" in metrics["ref/psnr"]["missing"]
    assert metrics["seam/step_levels"]["n"] == 2
    assert "needs 2 pictures" in metrics["frechet_shapes/orig"]["missing"]


def test_a_reference_with_other_seeds_is_none(tmp_path: Path) -> None:
    other = [{"index": 0, "text": "a", "seed": 9}]
    run_folder(tmp_path / "ref", "reference", lambda _: grey(100)).update_record(prompts=other)
    assert find_reference(run_folder(tmp_path / "run", "otil", lambda _: grey(100))) is None


def test_one_picture_has_no_set_distance_and_no_error(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", noise, pictures=1)
    metrics = score(run_folder(tmp_path / "run", "otil", noise, pictures=1), ALL)
    assert metrics["frechet_shapes/orig"]["value"] is None
    assert metrics["ref/psnr"]["standard_error"] is None


def test_a_broken_run_beside_this_one_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "record.json").write_text('{"status": "do')
    run_folder(tmp_path / "ref", "reference", noise)
    folder = run_folder(tmp_path / "run", "otil", noise)
    reference = find_reference(folder)
    assert reference is not None
    assert reference.path.name == "ref"


def test_scores_are_asked_for_again_when_the_reference_or_the_metrics_change(tmp_path: Path) -> None:
    folder, psnr = run_folder(tmp_path / "run", "otil", noise), MetricsConfig(psnr=True)
    assert not is_scored(folder, psnr)
    score(folder, psnr)
    assert is_scored(folder, psnr)
    assert not is_scored(folder, MetricsConfig(psnr=True, ssim=True))
    run_folder(tmp_path / "ref", "reference", noise)
    assert not is_scored(folder, psnr)
    score(folder, psnr)
    assert is_scored(folder, psnr)


def test_scores_leave_with_what_they_were_made_against(tmp_path: Path) -> None:
    """Without its reference a run keeps no score against it, asked for again or not; its own ones stay."""
    reference = run_folder(tmp_path / "ref", "reference", noise)
    folder = run_folder(tmp_path / "run", "otil", lambda i: noise(10 + i))
    before = score(folder, ALL)
    assert before["ref/step_levels"]["value"] > 0
    shutil.rmtree(reference.path)
    after = score(folder, MetricsConfig(text_image="shapes_text_image"))
    assert [key for key in before if key.startswith(("ref/", "reference/")) or key.endswith("/orig")]
    assert not [key for key in after if key.startswith(("ref/", "reference/")) or key.endswith("/orig")]
    assert after["seam/step_levels"] == before["seam/step_levels"]
    asked = score(folder, ALL)
    assert {key for key, entry in asked.items() if key.startswith(("ref/", "reference/")) and entry["value"] is None}
    assert not [key for key, entry in asked.items() if key.startswith("ref/") and entry["value"] is not None]


def test_scores_of_another_reference_leave_too(tmp_path: Path) -> None:
    reference = run_folder(tmp_path / "ref", "reference", noise)
    folder = run_folder(tmp_path / "run", "otil", lambda i: noise(10 + i))
    score(folder, MetricsConfig(psnr=True, ssim=True))
    assert {"ref/psnr", "ref/ssim"} <= set(score(folder, MetricsConfig(psnr=True)))  # the same one: still true
    reference.update_record(ended="later")  # made again
    assert "ref/ssim" not in score(folder, MetricsConfig(psnr=True))


def pictures_in(folder: Path, number: int, seed: int) -> Path:
    folder.mkdir(exist_ok=True)
    for index in range(number):
        noise(seed + index).save(folder / f"{index}.png")
    return folder


def test_scores_against_another_ground_truth_leave_and_say_which_it_was(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "otil", noise)
    truth = pictures_in(tmp_path / "truth", 3, seed=50)
    settings = MetricsConfig(extractors=["shapes_classifier"], ground_truth=str(truth))
    entry = score(folder, settings)["frechet_shapes/gt"]
    assert entry["ground_truth"]["path"] == str(truth)
    assert (entry["ground_truth"]["count"], len(entry["ground_truth"]["digest"])) == (3, 12)
    assert is_scored(folder, settings)
    noise(99).save(truth / "3.png")
    assert not is_scored(folder, settings)
    more = score(folder, settings)["frechet_shapes/gt"]
    assert more["ground_truth"]["digest"] != entry["ground_truth"]["digest"]
    assert more["n_reference"] == 4
    left = score(folder, MetricsConfig(extractors=["shapes_classifier"]))
    assert not [key for key in left if key.endswith("/gt")]


def test_a_folder_of_ground_truth_is_read_once_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks extract it once; the next runs read features, and get the same distance to the last digit."""
    truth = pictures_in(tmp_path / "truth", 5, seed=50)
    settings = MetricsConfig(extractors=["shapes_classifier"], ground_truth=str(truth))
    read: list[str] = []
    original = ground_truth.read_rgb
    monkeypatch.setattr(ground_truth, "read_rgb", lambda path: read.append(path.name) or original(path))
    runs = [run_folder(tmp_path / name, "otil", noise) for name in ("a", "b", "c")]
    found = [score(runs[0], settings, world_size=4)["kernel_shapes/gt"]]
    assert sorted(read) == [f"{index}.png" for index in range(5)]
    found += [
        score(run, settings, world_size=size)["kernel_shapes/gt"] for run, size in zip(runs[1:], (1, 2), strict=True)
    ]
    assert len(read) == 5
    assert found[0] == found[1] == found[2]


def test_kept_features_that_are_cut_or_cannot_be_kept_are_made_again(tmp_path: Path, cache: Path) -> None:
    truth = pictures_in(tmp_path / "truth", 3, seed=50)
    settings = MetricsConfig(extractors=["shapes_classifier"], ground_truth=str(truth))
    folder = run_folder(tmp_path / "run", "otil", noise)
    first = score(folder, settings)["kernel_shapes/gt"]
    [kept] = cache.rglob("*.npy")
    kept.write_bytes(kept.read_bytes()[:200])
    assert score(folder, settings)["kernel_shapes/gt"] == first
    shutil.rmtree(cache / "otil_exp")
    (cache / "otil_exp").write_text("no folder")
    assert score(folder, settings)["kernel_shapes/gt"] == first


def test_renders_are_the_partners_of_the_pictures_that_show_the_same_prompt(tmp_path: Path) -> None:
    """Picture i and render i are alike whatever the method does: a kernel distance that counted the pairs would be far
    below 0 for a run of perfect pictures. It is a double loop over i != j in float64 here."""
    count = 5
    renders = ground_truth.ScenePictures([CAPTION] * count, SIDE, SIDE)
    levels = [(one.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8) for one in renders]
    blurred = [Image.fromarray(one).resize((16, 16)).resize((SIDE, SIDE)) for one in levels]
    scores = {}
    for name, pictures in (("perfect", [Image.fromarray(one) for one in levels]), ("blurred", blurred)):
        run = run_folder(tmp_path / name / "run", "otil", pictures.__getitem__, pictures=count)
        settings = MetricsConfig(extractors=["shapes_classifier"], ground_truth="renders")
        scores[name] = score(run, settings)["kernel_shapes/gt"]["value"]
    features = load_extractor("shapes_classifier")
    x = features([torch.from_numpy(np.asarray(one) / 255).permute(2, 0, 1) for one in blurred])
    y = features(renders)

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float((a @ b / len(a) + 1) ** 3)

    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    expected = np.mean([k(x[i], x[j]) + k(y[i], y[j]) - k(x[i], y[j]) - k(x[j], y[i]) for i, j in pairs])
    assert scores["blurred"] == pytest.approx(expected, rel=1e-6)
    assert abs(scores["perfect"]) < 1e-3 * scores["blurred"]  # not 0: pictures have 8 bits, renders are floats


def test_rank_0_decides_on_the_reference_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 1 to 3 still see an older folder, without the reference: all four pictures are compared all the same."""
    run_folder(tmp_path / "ref", "reference", noise, pictures=4)
    folder = run_folder(tmp_path / "run", "otil", noise, pictures=4)
    seen = threading.local()
    original = References.of
    monkeypatch.setattr(References, "of", lambda self, run: original(self, run) if seen.rank == 0 else None)

    def note_rank(rank: int) -> None:
        seen.rank = rank

    entry = score(folder, MetricsConfig(psnr=True), world_size=4, before=note_rank)["ref/psnr"]
    assert entry["n"] == 4


def test_what_fails_while_scores_are_written_is_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, settings = run_folder(tmp_path / "run", "otil", noise), MetricsConfig(text_image="shapes_text_image")

    def full(self: RunFolder, metrics: dict[str, Any], without: Any = ()) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "update_metrics", full)
        with pytest.raises(OSError, match="no space"):
            score(folder, settings)
    assert not is_scored(folder, settings)
    score(folder, settings)
    assert is_scored(folder, settings)
    (folder.path / "metrics.json").unlink()
    assert not is_scored(folder, settings)


def test_a_setting_that_is_new_and_left_alone_makes_no_run_score_again(tmp_path: Path) -> None:
    folder, settings = run_folder(tmp_path / "run", "otil", noise), MetricsConfig(text_image="shapes_text_image")
    score(folder, settings)
    assert "paired" not in folder.record["scored_with"]
    assert folder.record["scored_with"]["text_image"] == "shapes_text_image"


def test_memory_and_spread_of_times_stand_in_metrics_json(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "otil", noise)
    assert "GPUs only" in score(folder, MetricsConfig())["memory/peak_mib"]["missing"]
    folder.update_record(peak_memory_mib=1234.5)
    entry = score(folder, MetricsConfig())["memory/peak_mib"]
    assert (entry["value"], entry["unit"], entry["n"], entry["by_rank"]) == (1234.5, "MiB", 1, [1234.5])
    folder.update_record(peak_memory_mib=1234.5, peak_memory_mib_by_rank=[800.0, 1234.5])
    entry = score(folder, MetricsConfig())["memory/peak_mib"]
    assert (entry["value"], entry["n"], entry["by_rank"]) == (1234.5, 2, [800.0, 1234.5])
