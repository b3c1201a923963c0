"""Compiled kernels: arrays in, arrays out, one algorithm per file. Start with `reference`."""
