"""The page with the verdict on an A/B test."""
