"""In which range of ids a text id lies, by its bytes; the order of bytes is that of code points."""

from __future__ import annotations

from trimtab.kernels.compiling import helper, kernel


@kernel
def find_text_ranges(start, stop, offsets, text, start_offsets, start_text, out):
    """Write how many of the ascending first ids of ranges are at most the id of each row.

    Row r has the bytes text[offsets[r]:offsets[r + 1]]; the first ids are laid out alike.
    """
    for row in range(start, stop):
        low = 0
        high = len(start_offsets) - 1
        while low < high:
            middle = (low + high) >> 1
            first, end = start_offsets[middle], start_offsets[middle + 1]
            if _comes_before(text, offsets[row], offsets[row + 1], start_text, first, end):
                high = middle
            else:
                low = middle + 1
        out[row] = low


@helper
def _comes_before(text, first, end, other, other_first, other_end):
    """Whether text[first:end] comes before other[other_first:other_end]."""
    length = min(end - first, other_end - other_first)
    for at in range(length):
        if text[first + at] != other[other_first + at]:
            return text[first + at] < other[other_first + at]
    return end - first < other_end - other_first
