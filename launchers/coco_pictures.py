"""Link the pictures that belong to captions into a folder for metrics.ground_truth, in the order of prompts=coco.

python launchers/coco_pictures.py dataset_coco.json val2014/ coco_ground_truth/
python launchers/coco_pictures.py captions_val2017.json val2017/ coco_ground_truth/ --limit 5000
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def file_names(captions: dict[str, Any]) -> list[str]:
    """Names of the pictures in the order of their prompts: of COCO's own JSON, or of Karpathy's dataset_coco.json."""
    if "annotations" not in captions:
        return [image["filename"] for image in captions["images"] if image["split"] == "val"]
    captioned = {annotation["image_id"] for annotation in captions["annotations"] if annotation["caption"]}
    names = {image["id"]: image["file_name"] for image in captions["images"] if image["id"] in captioned}
    return [names[image] for image in sorted(captioned)]


def link(captions: Path, pictures: Path, folder: Path, limit: int) -> int:
    """Make folder/0000.jpg ... as links; how many.

    Raises ValueError for a file of another form, FileNotFoundError for a picture that is not there, FileExistsError.
    """
    try:
        names = file_names(json.loads(captions.read_text(encoding="utf-8")))[:limit]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{captions}: not a COCO captions file ({error}); use such as captions_val2017.json"
        ) from error
    if not names:
        raise ValueError(f"{captions}: no captions of validation pictures in it; use dataset_coco.json as published")
    missing = [name for name in names if not (pictures / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{len(missing)} of {len(names)} pictures are not in {pictures}, such as {missing[0]}")
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        (folder / f"{number:04d}{Path(name).suffix}").symlink_to((pictures / name).absolute())
    return len(names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captions", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("folder", type=Path, help="made by this")
    parser.add_argument("--limit", type=int, default=5000)
    arguments = parser.parse_args()
    try:
        print(f"{arguments.folder}: {link(**vars(arguments))} pictures")
    except (OSError, ValueError) as error:
        sys.exit(str(error))
