"""Read and check data frames and files, turn ids into codes, and write the caller's frame type."""
