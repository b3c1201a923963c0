"""fit: learns from Parquet files that may be larger than memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Codes
from trimtab.checks import DUPLICATES, require_choice
from trimtab.errors import SettingError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.bias_learner import warm_up
from trimtab.learn.hierarchy.hierarchy_fit import BiasFit
from trimtab.learn.hierarchy.shared_inputs import SharedInputs
from trimtab.learn.history import Histories
from trimtab.learn.partitions.global_counts import check_counts, sum_totals
from trimtab.learn.partitions.part_histories import count_in_parts, log_of_sample
from trimtab.learn.partitions.partitioned_fit import PartitionedInputs, fit_partitioned
from trimtab.learn.partitions.sampled_partitions import sample_partitioned
from trimtab.learn.partitions.unit_survey import survey_units
from trimtab.learn.rerank.rerank_fit import fit_rerank
from trimtab.learn.rerank.sampled_units import SampledUnits, UserLog
from trimtab.learn.rerank_learner import require_events, require_history
from trimtab.learn.settings import LearnerSettings
from trimtab.models import ItemBias, Reranker
from trimtab.parquet.coded_files import CodedFiles, code_files
from trimtab.parquet.fit_sources import FitSources
from trimtab.progress import Progress, progress_reporter
from trimtab.tables.columns import GivenColumns
from trimtab.tables.user_ranges import ROWS_PER_PART


def fit(
    learner: BiasLearner | RerankLearner,
    recs: Any,
    recent: Any,
    *,
    history: Any | None = None,
    items: Any | None = None,
    weights: Any | None = None,
    duplicates: str = "error",
    progress: bool | Progress | None = None,
    columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
) -> ItemBias | Reranker:
    """Return what the learner's own `fit` returns for the same tables in memory.

    Tables are read part by part, by ranges of user ids. If their row groups are not in the order
    of user ids, their rows are copied once to temporary files, and so are the coded lists: have
    about 15 bytes per row of `recs` free on disk.

    Args:
        learner: the settings: the default method, or a Reranker.
        recs: user_id, item_id, score; like all tables here, a Parquet file, a folder of them, an
            address, or an Arrow table.
        recent: user_id, item_id, and timestamp if known.
        history: user_id, item_id, and timestamp if known: single events.
        items: item_id, category; read into memory.
        weights: user_id, weight.
        duplicates: what to do when `recs` has a (user, item) pair twice.
        progress: as for `BiasLearner.fit`.
        columns: the names that columns have in the files.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; by default the system's.
    """
    require_choice("duplicates", duplicates, DUPLICATES)
    biases = learner.biases if isinstance(learner, RerankLearner) else learner
    if not biases.is_hierarchy:
        raise SettingError(
            f"method={biases.method!r}: files are learned from by the hierarchy only; read the "
            f"tables into memory and use BiasLearner.fit"
        )
    sources = FitSources.open(recs, recent, history, items, weights, columns)
    return fit_sources(learner, sources, duplicates, progress, rows_per_part, folder)


def fit_sources(
    learner: BiasLearner | RerankLearner, sources: FitSources, duplicates: str,
    progress: bool | Progress | None = None, rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
) -> ItemBias | Reranker:  # fmt: skip
    """Return what the learner learns from open tables; the arguments are those of `fit`."""
    biases = learner.biases if isinstance(learner, RerankLearner) else learner
    if isinstance(learner, RerankLearner):
        require_history(sources.history)
        for name in ("history", "recent"):
            require_events(name, sources.by_user[name].schema.names, {})
    warm_up()
    with (
        code_files(sources, biases.unlisted, duplicates, rows_per_part, folder) as coded,
        progress_reporter(progress, 1) as report,
    ):
        source = _FileSource(biases, coded, sources.has_windows, report)
        if isinstance(learner, RerankLearner):
            return fit_rerank(biases, asdict(learner), source, sources.has_zone)
        return source.fit_biases().bias


@dataclass
class _FileSource:
    """Where a fit gets its units from: coded files."""

    biases: LearnerSettings
    coded: CodedFiles
    has_windows: bool
    progress: Progress | None

    def __post_init__(self) -> None:
        coded, k, metric = self.coded, self.biases.k, self.biases.metric
        survey = survey_units(coded.units, self.biases, len(coded.item_ids), coded.n_windows)
        check_counts(survey.counts, self.has_windows, k)
        self.histories = self._count_histories()
        self._inputs = PartitionedInputs(
            units=coded.units,
            item_ids=coded.item_ids,
            n_windows=coded.n_windows,
            window=coded.window,
            survey=survey,
            totals=sum_totals(coded.units, k, metric, survey.counts),
            histories=self.histories,
            categories=coded.categories,
        )

    def _count_histories(self) -> Histories:
        coded = self.coded
        if coded.times is None:
            return Histories()
        return count_in_parts(coded.read_logs, coded.times, len(coded.item_ids), coded.n_windows)

    def fit_biases(self) -> BiasFit:
        """The fit of the biases."""
        found = fit_partitioned(self.biases, self._inputs, self.progress)
        self._windows: Codes = found.windows
        return found.fit

    def sample(self, shared: SharedInputs) -> tuple[SampledUnits, UserLog]:
        """A sample of the units, and what their users bought before."""
        coded = self.coded
        assert coded.times is not None
        sampled = sample_partitioned(self._inputs, self._windows, shared)
        before = np.array([part.users_before for part in coded.units.parts])
        parts = np.split(sampled.users, np.searchsorted(sampled.users, before[1:]))
        users = [own - first for own, first in zip(parts, before, strict=True)]
        log = log_of_sample(coded.read_logs, coded.times, users, len(coded.item_ids))
        return sampled, log
