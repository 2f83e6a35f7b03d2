"""The model that ships: scenes, a small SDXL that draws them, and the two small networks that judge its pictures."""

from pathlib import Path

PIPELINE_FOLDER = Path(__file__).parent / "weights"
"""What `DiffusionPipeline.from_pretrained` loads: an SDXL-architecture pipeline for 256 x 256 pictures."""

METRICS_FOLDER = Path(__file__).parent / "weights_metrics"
"""Weights of `SceneClassifier` and `TextImageModel`."""

FEATURES = 64
"""Length of the feature vector that `SceneClassifier` makes of a picture."""
