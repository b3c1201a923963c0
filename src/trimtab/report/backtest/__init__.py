"""The report of a backtest."""
