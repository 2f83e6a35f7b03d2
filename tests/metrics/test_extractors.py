"""Feature extractors: a picture's features are its own, and only the real InceptionV3 may be called FID."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from thread_counts import on_threads
from torch import Tensor
from torch_fidelity import feature_extractor_inceptionv3 as fidelity

from otil_exp.metrics import extractors
from otil_exp.metrics.distances import set_distances
from otil_exp.metrics.efficientnet import EfficientNetLite0
from otil_exp.metrics.extractors import INCEPTION_FILE, Extractor, load_extractor
from otil_exp.shapes.classifier import SceneClassifier
from otil_exp.shapes.scenes import held_out_scenes, render


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    """22 pictures as files hold them: floats that are 8-bit values."""
    drawn = render(held_out_scenes()[:22], size=64)
    return (drawn * 255).round() / 255


@pytest.fixture(scope="module")
def inception_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights file's stand-in: the network's own random start, scaled so that features stay alive."""
    path = tmp_path_factory.mktemp("inception") / INCEPTION_FILE
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        torch.manual_seed(0)
        patch.setattr(fidelity, "load_state_dict_from_url", lambda *args, **kwargs: {})
        patch.setattr(fidelity.FeatureExtractorInceptionV3, "load_state_dict", lambda self, state: None)
        network = fidelity.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"])
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.weight *= 6**0.5
    torch.save(network.state_dict(), path)
    return path


@contextmanager
def taken_for_real(file: Path) -> Iterator[None]:
    """The stand-in passes for the real file, whose hash it cannot have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extractors, "INCEPTION_SHA256", hashlib.sha256(file.read_bytes()).hexdigest()[:8])
        yield


@pytest.fixture(scope="module")
def inception(inception_file: Path) -> Extractor:
    with taken_for_real(inception_file):
        return load_extractor("inception", inception_file)


@pytest.fixture(scope="module", params=["inception", "effnet_lite0", "shapes_classifier"])
def extractor(request: pytest.FixtureRequest) -> Extractor:
    if request.param == "inception":
        return request.getfixturevalue("inception")
    return load_extractor(request.param)


def test_features_are_float64_one_row_a_picture(extractor: Extractor, pictures: Tensor) -> None:
    features = extractor(pictures[:2])
    assert features.shape == (2, extractor.size)
    assert features.dtype == np.float64
    assert features.std() > 0
    assert not (features[0] == features[1]).all()


def test_no_pictures_have_no_features(extractor: Extractor, pictures: Tensor) -> None:
    assert extractor(pictures[:0]).shape == (0, extractor.size)
    assert extractor([]).shape == (0, extractor.size)


def test_a_picture_has_the_same_features_in_any_company(extractor: Extractor, pictures: Tensor) -> None:
    together = extractor(pictures[:3])
    alone = [extractor([picture])[0] for picture in pictures[:3]]
    assert (together == alone).all()
    assert (extractor(pictures[:3].flip(0))[::-1] == together).all()


def test_the_number_of_threads_does_not_matter(extractor: Extractor, pictures: Tensor) -> None:
    """InceptionV3's features differ in the last bits between 1 and 2 threads unless they are held to one."""
    features = []
    for threads in (1, 2):
        with on_threads(threads):
            features.append(extractor(pictures[:1]))
    assert (features[0] == features[1]).all()


def test_double_precision_pictures_are_the_same_pictures(extractor: Extractor, pictures: Tensor) -> None:
    assert (extractor(pictures[:1].double()) == extractor(pictures[:1])).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(3, 64, 64, dtype=torch.uint8), "pass floats in .0, 1., 8-bit values divided by 255"),
        (torch.full((3, 64, 64), 128.0), "values from 128 to 128: pass floats in .0, 1."),
        (torch.full((3, 64, 64), -0.5), "values from -0.5"),
        (torch.full((3, 64, 64), torch.nan), "values from nan"),
        (torch.zeros(64, 64, 3), r"shape \(64, 64, 3\): pass \(3, H, W\)"),
    ],
)
def test_what_is_no_picture_in_0_to_1_is_refused(extractor: Extractor, wrong: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        extractor([wrong])


def test_inception_sees_the_very_8_bit_values_of_the_file(inception: Extractor, inception_file: Path) -> None:
    """torch-fidelity itself, given the bytes; all 256 values come back from floats."""
    values = torch.arange(256, dtype=torch.uint8).repeat(3, 16, 1)
    network = fidelity.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(inception_file))
    with on_threads(1):
        wanted = network(values[None])[0].double().numpy()
    assert (inception([values / 255]) == wanted).all()


def test_effnet_and_classifier_see_the_picture_as_it_is(pictures: Tensor) -> None:
    for name, network in (("effnet_lite0", EfficientNetLite0.load()), ("shapes_classifier", SceneClassifier.load())):
        with torch.no_grad():
            wanted = network.features(pictures[:1])
        assert load_extractor(name)(pictures[:1]) == pytest.approx(wanted.double().numpy(), rel=1e-4, abs=1e-5)


def test_only_inception_is_called_fid(inception: Extractor, pictures: Tensor) -> None:
    names = {}
    for extractor in (inception, load_extractor("effnet_lite0"), load_extractor("shapes_classifier")):
        features = extractor(pictures[:3])
        distances = set_distances(features, features[:2], extractor, "gt", paired=False)
        names[extractor.name] = tuple(distances)
        for distance in distances.values():
            assert (distance.extractor, distance.n, distance.n_reference) == (extractor.name, 3, 2)
            assert (distance.size, distance.resize, distance.backend) == (
                extractor.size,
                extractor.resize,
                extractor.backend,
            )
    assert names == {
        "inception": ("fid/gt", "kid/gt"),
        "effnet_lite0": ("frechet_effnet_lite0/gt", "kernel_effnet_lite0/gt"),
        "shapes_classifier": ("frechet_shapes/gt", "kernel_shapes/gt"),
    }


def test_any_split_over_ranks_gives_one_process_s_distances(pictures: Tensor) -> None:
    """13, 5, 3, 1 and no pictures, each rank with its own number of threads, joined in the pictures' order."""
    extractor = load_extractor("shapes_classifier")
    reference = extractor(pictures.flip(-1))
    shards = []
    for rank, share in enumerate(pictures.split([13, 5, 3, 1, 0])):
        with on_threads(1 + rank % 3):
            shards.append(extractor(share))
    whole = set_distances(extractor(pictures), reference, extractor, "gt", paired=False)
    assert set_distances(np.concatenate(shards), reference, extractor, "gt", paired=False) == whole
    assert whole["frechet_shapes/gt"].value > 0


def test_pictures_may_come_one_by_one(pictures: Tensor) -> None:
    extractor = load_extractor("shapes_classifier")
    assert (extractor(picture for picture in pictures) == extractor(pictures)).all()


def test_distances_tell_other_pictures_from_the_same(pictures: Tensor) -> None:
    """Inverted pictures are farther than a slightly darker copy, by every extractor that ships."""
    for name in ("effnet_lite0", "shapes_classifier"):
        extractor = load_extractor(name)
        sets = [extractor(some) for some in (pictures[:8], pictures[:8] * 0.98, 1 - pictures[:8])]
        near, far = (set_distances(some, sets[0], extractor, "orig", paired=True) for some in sets[1:])
        for key in near:
            assert near[key].value < far[key].value


def test_missing_inception_says_what_to_fetch_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub" / "checkpoints" / INCEPTION_FILE
    with pytest.raises(FileNotFoundError) as caught:
        load_extractor("inception")
    for part in (INCEPTION_FILE, str(place), "github.com/toshas/torch-fidelity/releases", "effnet_lite0"):
        assert part in str(caught.value)
    with pytest.raises(FileNotFoundError, match="nowhere.pth is not there"):
        load_extractor("inception", tmp_path / "nowhere.pth")


def test_another_file_of_that_name_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's cache checks no hash of a file that is there: random weights would be reported as FID."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub" / "checkpoints" / INCEPTION_FILE
    place.parent.mkdir(parents=True)
    place.write_bytes(b"not a pickle")
    with pytest.raises(ValueError, match=r"is not the InceptionV3 of FID .SHA-256 [0-9a-f]{8}\.\.\., not 6726825d"):
        load_extractor("inception")


def test_inception_is_found_in_torch_s_cache(
    inception: Extractor, inception_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: Tensor
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub" / "checkpoints" / INCEPTION_FILE
    place.parent.mkdir(parents=True)
    place.symlink_to(inception_file)
    with taken_for_real(inception_file):
        found = load_extractor("inception")
    assert (found(pictures[:1]) == inception(pictures[:1])).all()


def test_unknown_names_and_needless_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="extractor 'vgg': use one of inception, inception_clean, effnet_lite0, sh"):
        load_extractor("vgg")
    with pytest.raises(ValueError, match="effnet_lite0 comes with its weights: leave out the path here.pth"):
        load_extractor("effnet_lite0", "here.pth")
