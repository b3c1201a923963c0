#!/bin/sh
# Learn from the last days, check, and publish: every night, after the engine has written its lists.
cd "$(dirname "$0")" || exit 2
. ./settings.sh
exec trimtab refresh --lists "$LISTS" --events "$EVENTS" --store "$STORE" --tz "$TZ_OF_SHOP" \
    --metric "$METRIC" --k "$K" --method "$METHOD" ${AS_OF:+--as-of "$AS_OF"}
