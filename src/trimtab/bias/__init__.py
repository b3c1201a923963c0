"""The learned biases: `ItemBias`, its `Summary`, and `Folded` vectors."""

from trimtab.bias.export.folding import Folded
from trimtab.bias.item_bias import ItemBias
from trimtab.bias.table import Summary

__all__ = ["Folded", "ItemBias", "Summary"]
