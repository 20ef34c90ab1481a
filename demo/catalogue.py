"""The data of the tour: a catalogue of invented films, the same on every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DIMENSIONS = 32
_SEED = 1895
_UNPRICED_FEED = 6
_FIRST_YEAR, _LAST_YEAR = 1920, 2024

_CATEGORIES = {
    "drama": 0.27,
    "comedy": 0.19,
    "documentary": 0.13,
    "thriller": 0.10,
    "action": 0.08,
    "romance": 0.07,
    "horror": 0.06,
    "animation": 0.04,
    "science fiction": 0.03,
    "western": 0.02,
    "musical": 0.01,
}
_ADJECTIVES = (
    "Silent Last Hidden Crimson Broken Distant Burning Golden Frozen Quiet Lost Midnight Endless"
    " Paper Electric Forgotten Restless Hollow Northern Second Velvet Savage Tender Borrowed"
)
_NOUNS = (
    "Harbour Garden Letter River Kingdom Stranger Mirror Winter Orchard Signal Highway Empire"
    " Promise Lighthouse Carnival Witness Voyage Shadow Island Engine Summer Frontier Waltz Tide"
    " Reef Tower Market Canyon Parade Season Detective Pianist"
)
_WORDS = (
    "the a of and to in her his with who that from when an old young town family secret war"
    " love returns must learns finds past two night one city life after before against friend"
    " daughter brother village years stranger murder island train summer winter money journey"
    " detective painter soldier teacher farmer singer captain lawyer thief orphan widow discovers"
    " betrays follows escapes remembers forgives loses inherits pretends refuses promises crosses"
    " border desert mountain river harbour theatre hotel prison school factory museum cathedral"
    " letter photograph diary map machine violin horse ship comet storm fire silence memory truth"
    " revenge fortune justice freedom exile marriage election trial funeral wedding strike flood"
    " nobody everyone nothing everything almost never always slowly suddenly quietly far beneath"
    " beyond without between until while because although stubborn lonely brilliant ruined"
    " ambitious forgotten dangerous gentle impossible ordinary"
)
_TAGS = (
    "classic restored subtitled black-and-white award-winner cult festival based-on-a-book"
    " true-story remake debut ensemble road-movie heist courtroom coming-of-age"
)


@dataclass(frozen=True)
class Catalogue:
    """Films in the order of their release, which is also the order of their ids, and the order
    in which they arrive, which is neither."""

    films: pa.Table
    arrival: np.ndarray
    batch_rows: int

    @property
    def batches(self) -> int:
        """How many batches they arrive in."""
        return -(-len(self.arrival) // self.batch_rows)

    def arrivals(self) -> Iterator[pa.Table]:
        """The batches. Every sixth is from a feed that knows no prices: it lacks the column."""
        for number in range(self.batches):
            start = number * self.batch_rows
            rows = self.arrival[start : start + self.batch_rows]
            batch = self.films.take(pa.array(rows)).combine_chunks()
            yield batch.drop_columns("price") if _is_unpriced(number) else batch


def catalogue(count: int, batch_rows: int) -> Catalogue:
    """That many films. Years, categories, words and tags are skewed as they are in life; some
    films have no rating yet, some no tags, some no price."""
    random = np.random.default_rng(_SEED)
    arrival = random.permutation(count)
    unpriced = np.empty(count, bool)
    unpriced[arrival] = _is_unpriced(np.arange(count) // batch_rows)
    released = _released(random, count)
    kinds = random.choice(len(_CATEGORIES), count, p=list(_CATEGORIES.values()))
    unrated = random.random(count) < 0.08
    ratings = np.clip(np.round(random.normal(6.4, 1.2, count), 1), 1.0, 10.0)
    films = pa.table(
        {
            "id": pa.array([f"film-{number:06d}" for number in range(count)]),
            "title": _titles(random, count),
            "category": pa.array(list(_CATEGORIES)).take(pa.array(kinds)),
            "year": pa.array(released.astype("datetime64[Y]").astype(np.int64) + 1970),
            "price": pa.array(np.round(random.lognormal(2.2, 0.5, count), 2), mask=unpriced),
            "rating": pa.array(ratings, mask=unrated),
            "version": pa.array(np.ones(count, np.int64)),
            "released": pa.array(released).cast(pa.timestamp("us", tz="UTC")),
            "tags": _tags(random, count),
            "description": _descriptions(random, count),
            "embedding": _embeddings(random, kinds),
        }
    )
    return Catalogue(films, arrival, batch_rows)


def _is_unpriced(batch: Any) -> Any:
    return batch % _UNPRICED_FEED == _UNPRICED_FEED - 1


def _released(random: np.random.Generator, count: int) -> np.ndarray:
    """Moments in ascending order, ever more of them a year."""
    span = _LAST_YEAR + 1 - _FIRST_YEAR
    years = _FIRST_YEAR - 1970 + span * np.sqrt(np.sort(random.random(count)))
    seconds = (years * 365.2425 * 86_400).astype(np.int64)
    return seconds.astype("datetime64[s]").astype("datetime64[us]")


def _titles(random: np.random.Generator, count: int) -> pa.Array:
    adjectives = _some(random, _ADJECTIVES, count)
    nouns = _some(random, _NOUNS, count)
    return pc.binary_join_element_wise("The", adjectives, nouns, " ")


def _descriptions(random: np.random.Generator, count: int) -> pa.Array:
    lengths = random.integers(20, 38, count)
    return pc.binary_join(_lists(random, _WORDS, lengths), " ")


def _tags(random: np.random.Generator, count: int) -> pa.Array:
    lengths = random.binomial(5, 0.35, count)
    lists = _lists(random, _TAGS, lengths)
    return pc.if_else(pa.array(lengths == 0), pa.scalar(None, lists.type), lists)


def _lists(random: np.random.Generator, text: str, lengths: np.ndarray) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _some(random, text, int(offsets[-1])))


def _some(random: np.random.Generator, text: str, count: int) -> pa.Array:
    """Words of the text, the first ones far more often than the last, as words are."""
    words = pa.array(text.split())
    weights = 1.0 / (np.arange(len(words)) + 2.7)
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(count))
    return words.take(pa.array(np.minimum(chosen, len(words) - 1)))


def _embeddings(random: np.random.Generator, kinds: np.ndarray) -> pa.Array:
    """Points around the middle of their category."""
    middles = random.standard_normal((len(_CATEGORIES), DIMENSIONS)).astype(np.float32)
    values = middles[kinds] + 0.4 * random.standard_normal((len(kinds), DIMENSIONS), np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSIONS)
