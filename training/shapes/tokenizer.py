"""A byte-level BPE in CLIP's format, trained on captions, so that CLIPTokenizer loads it without a network."""

import itertools
from collections import Counter
from pathlib import Path
from random import Random

from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPTokenizer

from otil_exp.shapes.scenes import caption, sample_scene

LENGTH = 32
"""Tokens a caption is padded or cut to."""

END_OF_WORD = "</w>"


def train_tokenizer(folder: Path, seed: int, captions: int = 20_000, merges: int = 400) -> CLIPTokenizer:
    """Learn merges from captions of random scenes and save the tokenizer in `folder`."""
    random = Random(seed)
    texts = (caption(sample_scene(random), random) for _ in range(captions))
    words = Counter(word for text in texts for word in text.replace(",", " ").split())
    learned = learn_merges(words, merges)
    alphabet = sorted(ByteLevel.alphabet())
    pieces = [*alphabet, *(letter + END_OF_WORD for letter in alphabet), *(a + b for a, b in learned)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={piece: index for index, piece in enumerate(pieces)}, merges=learned, model_max_length=LENGTH
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def learn_merges(words: Counter[str], limit: int) -> list[tuple[str, str]]:
    """Byte-pair encoding: join the most frequent pair of pieces until every word is one piece or `limit` is reached."""
    spelled = {word: [*word[:-1], word[-1] + END_OF_WORD] for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < limit:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in spelled.items():
            for pair in itertools.pairwise(pieces):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        spelled = {word: join(pieces, best) for word, pieces in spelled.items()}
    return merges


def join(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Replace each occurrence of `pair` by one piece."""
    joined: list[str] = []
    for piece in pieces:
        if joined and (joined[-1], piece) == pair:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined
