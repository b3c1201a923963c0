# Settings of daily.sh and judge.sh. Change these.
LISTS=lists               # folder with one file of lists per day
EVENTS=events.parquet     # purchases: user_id, item_id, timestamp; a file, a folder or a database
STORE=store               # where versions are published
TZ_OF_SHOP=Europe/London  # where the shop's days begin
METRIC=ndcg               # what you judge by: acc, map or ndcg
K=10                      # slots per user
METHOD=auto               # bias: a table of one number per item; reranker: finished lists; auto: the better one
AS_OF=2010-11-10          # the day to publish for. Leave it empty for today.
