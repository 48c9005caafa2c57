"""What the vector arm is asked with, and what it is given: vectors, fit to be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pagefile.errors import Invalid
from pagefile.recall.embed.embedder import Embedder, Floats, embed_query, unit_rows, unit_vector
from pagefile.recall.fusion import Weights
from pagefile.recall.text.question import Question
from pagefile.recall.vectors.vector_index import Vectors

#: Whoever gives the question's vector: an embedder, a function of the text, or the vector.
AsksVector = Embedder | Callable[[str], Sequence[float] | Floats] | Floats


def asked_with(
    question: Question, vector: AsksVector | None, weights: Weights, vectors: Vectors
) -> Floats | None:
    """The vector to ask with; None where the vector arm has no say."""
    if vector is None and weights.alpha == 1:
        raise Invalid("alpha", "1 asks for vectors alone", "give an embedder, or a lower alpha")
    if vector is None or not weights.alpha or not len(vectors):
        return None
    if isinstance(vector, np.ndarray):
        return unit_vector(vector, vectors.dimensions)
    if not question.text.strip():
        return None
    told = weights.first_person if question.first_person else 0
    if told in (0, 1):
        return _embedded(vector, question.first_person if told else question.text, vectors)
    forms = ((question.text, 1 - told), (question.first_person, told))
    rows = [np.float32(share) * _embedded(vector, form, vectors) for form, share in forms]
    mixed: Floats = np.sum(rows, axis=0)
    # Two opposite vectors would leave nothing to ask with.
    return unit_vector(mixed if mixed.any() else rows[0])


def _embedded(
    vector: Embedder | Callable[[str], Sequence[float] | Floats], text: str, vectors: Vectors
) -> Floats:
    if callable(vector):
        return unit_vector(vector(text), vectors.dimensions)
    vectors.require_dimensions(vector.dimensions)
    return embed_query(vector, text)


def unpacked_rows(raws: Sequence[bytes], vectors: Vectors) -> Floats:
    """Vectors as entries keep them, as rows of unit length.

    Raises:
        Invalid: they are not all as long as those that are here.
    """
    if not raws:
        return np.zeros((0, vectors.dimensions), np.float32)
    length = len(raws[0])
    if length % 2 or any(len(raw) != length for raw in raws):
        raise Invalid("vector", "vectors of two lengths, or half a number", "embed with one model")
    vectors.require_dimensions(length // 2)
    return unit_rows(np.frombuffer(b"".join(raws), "<f2").reshape(len(raws), -1), len(raws))
