"""The page of a simulated month of the daily job."""
