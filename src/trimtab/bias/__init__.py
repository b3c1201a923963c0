"""The learned biases: `ItemBias`, its `Summary`, `Folded` vectors and their `IndexForecast`."""

from trimtab.bias.export.folding import Folded
from trimtab.bias.export.index_forecast import IndexForecast
from trimtab.bias.item_bias import ItemBias
from trimtab.bias.table import Summary

__all__ = ["Folded", "IndexForecast", "ItemBias", "Summary"]
