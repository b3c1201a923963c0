"""Built-in engines and baselines, each with `fit(events, as_of)` and `recommend`."""

from trimtab.engines.base import Engine
from trimtab.engines.factorization import Factorization
from trimtab.engines.markov import Markov
from trimtab.engines.simple_engines import Category, Popularity, Repeat
from trimtab.engines.tifu_knn import TifuKNN

__all__ = ["Category", "Engine", "Factorization", "Markov", "Popularity", "Repeat", "TifuKNN"]
