"""Who wrote this sentence? Sentences are rows of different length, and nothing is padded.

    python examples/ragged_text.py [--epochs 6]

Sentences of *Alice's Adventures in Wonderland* and of *As You Like It* are ragged tensors of words. A
softmax within each sentence says which of its words count; the mean of their vectors, so weighted, decides.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence

import weft
import weft.datasets
from weft import RaggedTensor, Tensor, nn, optim

F = nn.functional
BOOKS = {"Carroll": weft.datasets.alice, "Shakespeare": weft.datasets.as_you_like_it}


def sentences(text: str) -> list[list[str]]:
    """The sentences of a book, without the names of speakers and what happens on the stage."""
    text = re.sub(r"^[A-Z ]{3,}\t|\[[^\]]*\]", " ", text, flags=re.MULTILINE)
    found = [re.findall(r"[a-z]+", sentence.lower()) for sentence in re.split(r"[.?!;:]", text)]
    return [words for words in found if 4 <= len(words) <= 60]


class Author(nn.Module):
    """From the words of sentences to the logit of the second book."""

    def __init__(self, words: int, width: int = 16) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.weigh, self.decide = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, batch: RaggedTensor) -> Tensor:
        """One logit for each sentence."""
        vectors = batch.map(self.vectors)
        weights = vectors.map(self.weigh).softmax()
        return self.decide((vectors * weights).sum())[:, 0]


def load() -> tuple[list[Tensor], Tensor, dict[str, int]]:
    """All sentences as numbers of words, which book each is from, and the numbers of the words."""
    books = [sentences(book()) for book in BOOKS.values()]
    count = Counter(word for book in books for sentence in book for word in sentence)
    numbers = {word: i for i, (word, n) in enumerate(count.most_common(), 1) if n > 1}  # 0 is a rare word
    rows = [weft.tensor([numbers.get(w, 0) for w in sentence]) for book in books for sentence in book]
    labels = weft.tensor([float(i) for i, book in enumerate(books) for _ in book])
    return rows, labels, numbers


def main(arguments: Sequence[str] | None = None) -> float:
    """Train; the part of held-out sentences whose author is found."""
    parser = argparse.ArgumentParser(description="Tell two authors apart")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    rows, labels, numbers = load()
    order = weft.randperm(len(rows)).tolist()
    held_out, training = order[: len(order) // 5], order[len(order) // 5 :]
    model = Author(len(numbers) + 1)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)

    def part(chosen: list[int]) -> tuple[RaggedTensor, Tensor]:
        return weft.ragged([rows[i] for i in chosen]), labels[weft.tensor(chosen)]

    for epoch in range(1, options.epochs + 1):
        mixed = [training[i] for i in weft.randperm(len(training)).tolist()]
        for first in range(0, len(mixed), 128):
            batch, authors = part(mixed[first : first + 128])
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(batch), authors)
            loss.backward()
            optimizer.step()
        with weft.no_grad():
            batch, authors = part(held_out)
            right = ((model(batch) > 0) == (authors > 0.5)).astype(weft.float32).mean().item()
        print(f"epoch {epoch:2}   loss {loss.item():.3f}   {right:.1%} of {len(held_out)} held-out sentences")
    return right


if __name__ == "__main__":
    main()
