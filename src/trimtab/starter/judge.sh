#!/bin/sh
# Would it have helped? Judges the engine's lists of the last weeks, and writes judged/report.html.
cd "$(dirname "$0")" || exit 2
. ./settings.sh
exec trimtab backtest --lists "$LISTS" --events "$EVENTS" --tz "$TZ_OF_SHOP" --metric "$METRIC" \
    --k "$K" --out judged
