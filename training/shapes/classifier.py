"""Train the classifier that judges pictures, on renders alone."""

import torch
import torch.nn.functional as F
from config import Stage
from pace import Pace, adamw, set_lr
from pool import Pool, as_float

from otil_exp.shapes.classifier import SceneClassifier, agreement, attribute_indices


def train_classifier(pool: Pool, stage: Stage, seed: int, device: torch.device, log) -> SceneClassifier:
    """Return a classifier trained on the pool but its last 512 scenes, which check it."""
    torch.manual_seed(seed)
    classifier = SceneClassifier().to(device)
    wanted = attribute_indices(pool.scenes, device)
    optimiser = adamw(list(classifier.parameters()), stage)
    pace = Pace(stage, log)
    for _ in pace:
        set_lr(optimiser, pace.lr())
        rows = torch.randint(max(1, len(pool.scenes) - 512), (stage.batch,), device=device)
        logits = classifier(roughen(as_float(pool.pictures[rows])))
        loss = sum(F.cross_entropy(logits[name], wanted[name][rows]) for name in wanted)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    classifier.eval()
    right = agreement(classifier, as_float(pool.pictures[-512:]), pool.scenes[-512:])
    shares = ", ".join(f"{name} {value.float().mean():.3f}" for name, value in right.items())
    log(f"classifier steps {pace.step} loss {loss.item():.4f}; right on unseen renders: {shares}")
    return classifier


def roughen(pictures: torch.Tensor) -> torch.Tensor:
    """Add a little noise and gain per picture, so that a generated picture's small errors do not mislead."""
    noise = torch.rand(len(pictures), 1, 1, 1, device=pictures.device) * 0.06
    gain = 1 + (torch.rand(len(pictures), 3, 1, 1, device=pictures.device) - 0.5) * 0.06
    return (pictures * gain + torch.randn_like(pictures) * noise).clamp(0, 1)
