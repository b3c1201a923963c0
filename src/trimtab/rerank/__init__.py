"""The Reranker: ranks by trend and by each user's own purchases, and adds to lists."""

from trimtab.rerank.events import LeftOut
from trimtab.rerank.explain_place import Explanation
from trimtab.rerank.rerank_table import Coefficient, RerankSummary
from trimtab.rerank.reranker import Reranker

__all__ = ["Coefficient", "Explanation", "LeftOut", "RerankSummary", "Reranker"]
