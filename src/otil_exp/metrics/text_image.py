"""How well a picture fits its caption: CLIP score, or the shapes model's own text-image model under its own name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from torch import Tensor

from otil_exp.metrics.pairwise import check_picture
from otil_exp.metrics.repeatable import repeatable, to_8bit
from otil_exp.metrics.sizes import SHAPES
from otil_exp.shapes import text_image as shapes

if TYPE_CHECKING:  # seconds; wanted by pictures that are scored, not by configs that are checked
    from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer, PreTrainedTokenizerBase

VIT_L_14 = "openai/clip-vit-large-patch14"
"""The CLIP that published scores of SDXL use most."""


FILES = {
    "configuration": (("config.json",),),
    "weights": tuple(
        (f"{name}{end}",) for name in ("model.safetensors", "pytorch_model.bin") for end in ("", ".index.json")
    ),
    "processor": (("preprocessor_config.json",), ("processor_config.json",)),
    "tokenizer": (("tokenizer.json",), ("vocab.json", "merges.txt")),
}
"""Files that each part of a CLIP is in, as transformers writes them: all of one of these."""


class TextImageModel(Protocol):
    """Scores one picture against one caption at a time: a score depends on the two alone, to the last bit."""

    name: str
    """Model whose score it is; goes beside every value."""

    truncated: int
    """Captions so far that were longer than the model reads; they are cut on purpose."""

    def similarity(self, picture: Tensor, caption: str) -> float:
        """Cosine in [-1, 1] of a picture (3, H, W), floats in [0, 1], and a caption.

        Raises ValueError for a picture that `check_picture` refuses.
        """


def load_text_image(source: str = VIT_L_14, device: torch.device | str = "cpu") -> TextImageModel:
    """`shapes_text_image`, or a CLIP by its hub id (from the cache) or local folder; nothing is ever downloaded.

    Raises FileNotFoundError where the CLIP is not there, ValueError where the folder holds another kind of model.
    """
    return ShapesTextImage(device) if source == SHAPES else Clip(source, device)


def clip_score(cosines: Sequence[float]) -> float:
    """Mean over pictures of 100 max(cosine, 0) (Hessel et al. 2021, in percent), in [0, 100].

    Each picture is cut at 0, not their mean, so that one bad picture does not take from the others.
    Raises ValueError for no pictures.
    """
    if not cosines:
        raise ValueError("no pictures to score: a CLIP score needs at least one")
    return fmean(100 * max(cosine, 0.0) for cosine in cosines)


class Clip:
    """A CLIP of transformers in float32, whatever it was saved in."""

    def __init__(self, source: str, device: torch.device | str = "cpu") -> None:
        self.name, self.truncated = source, 0
        self.device = torch.device(device)
        self.model, self.processor, self.tokenizer = _load_clip(source)
        self.model.to(self.device).eval()
        self.length: int = self.model.config.text_config.max_position_embeddings

    def similarity(self, picture: Tensor, caption: str) -> float:
        """Cosine in [-1, 1]; as TextImageModel says."""
        with repeatable():
            return cosine(self._of_picture(picture), self._of_caption(caption))

    def _of_picture(self, picture: Tensor) -> Tensor:
        """The processor scales by 1/255 itself, so it is given 8-bit values: floats would be scaled twice."""
        check_picture(picture)
        pixels = self.processor(
            to_8bit(picture).permute(1, 2, 0).cpu().numpy(), input_data_format="channels_last", return_tensors="pt"
        ).pixel_values
        return _pooled(self.model.get_image_features(pixel_values=pixels.to(self.device, torch.float32)))

    def _of_caption(self, caption: str) -> Tensor:
        self.truncated += is_longer(caption, self.tokenizer, self.length)
        tokens = self.tokenizer(caption, truncation=True, max_length=self.length, return_tensors="pt").to(self.device)
        features = self.model.get_text_features(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask)
        return _pooled(features)


class ShapesTextImage:
    """The small model that ships, trained on renders and captions of scenes. It is not CLIP."""

    name = SHAPES

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.truncated = 0
        self.device = torch.device(device)
        self.model = shapes.TextImageModel.load().to(self.device)
        self.tokenizer = shapes.load_tokenizer()

    def similarity(self, picture: Tensor, caption: str) -> float:
        """Cosine in [-1, 1]; as TextImageModel says."""
        check_picture(picture)
        self.truncated += is_longer(caption, self.tokenizer, self.tokenizer.model_max_length)
        with repeatable():
            of_picture = self.model.embed_pictures(picture[None].to(self.device, torch.float32))
            return cosine(of_picture, self.model.embed_captions([caption], self.tokenizer))


def cosine(a: Tensor, b: Tensor) -> float:
    """Cosine of two vectors (1, d), in float64."""
    return float(F.cosine_similarity(a.double(), b.double()))


def is_longer(caption: str, tokenizer: PreTrainedTokenizerBase, length: int) -> bool:
    """Tell whether the caption has more than `length` tokens, begin and end included."""
    return len(tokenizer(caption, verbose=False).input_ids) > length


def _pooled(features: Tensor | object) -> Tensor:
    """Projected features; transformers 5 hands them over inside an output object, 4 did as they are."""
    return features if isinstance(features, Tensor) else features.pooler_output  # type: ignore[attr-defined]


def check_text_image(source: str) -> None:
    """Raise FileNotFoundError, with what to fetch, unless all files of the model are here; loads none of them."""
    if source == SHAPES:
        return
    folder = Path(_place(source)) if os.path.isdir(_place(source)) else _cached(source)
    if folder is None:
        raise _not_here(source, "no config.json in the cache")
    for part, choices in FILES.items():
        if not any(all((folder / name).exists() for name in names) for names in choices):
            raise _not_here(source, f"no {part}: {' or '.join(' and '.join(names) for names in choices)}")


def _cached(source: str) -> Path | None:
    """The folder of a model in the hub's cache."""
    try:
        found = try_to_load_from_cache(source, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _place(source: str) -> str:
    folder = os.path.expanduser(source)
    return folder if os.path.isdir(folder) else source


def _not_here(source: str, error: Exception | str) -> FileNotFoundError:
    hub_id = source if re.fullmatch(r"[\w-]+/[\w.-]+", source) else VIT_L_14
    return FileNotFoundError(
        f"CLIP model {source} is neither a folder with model, tokenizer and processor nor in the cache: name such "
        f"a folder, or run `hf download {hub_id}` on a machine with internet ({str(error).splitlines()[0]})"
    )


def _load_clip(source: str) -> tuple[CLIPModel, CLIPImageProcessorPil, CLIPTokenizer]:
    """Pictures are resized by PIL, as OpenAI's own code does."""
    from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer
    from transformers.utils import logging as transformers_logging

    where = _place(source)
    transformers_logging.disable_progress_bar()
    try:
        model, report = CLIPModel.from_pretrained(
            where, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
        processor = CLIPImageProcessorPil.from_pretrained(where, local_files_only=True)
        tokenizer = CLIPTokenizer.from_pretrained(where, local_files_only=True)
    except (OSError, ValueError) as error:
        raise _not_here(source, error) from error
    if report["missing_keys"]:
        raise ValueError(f"{source} lacks weights of a CLIP, such as {min(report['missing_keys'])}: use a CLIP")
    words = model.config.text_config.vocab_size
    if len(tokenizer) != words:  # transformers makes an empty tokenizer where the files are missing
        raise ValueError(
            f"{source}: its tokenizer knows {len(tokenizer)} words, its model {words}: fetch all its files"
        )
    return model, processor, tokenizer
