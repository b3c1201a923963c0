"""The default learner: a trend that items share, then categories, then each item's own part."""
