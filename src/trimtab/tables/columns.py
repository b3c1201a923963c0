"""Column names."""

USER = "user_id"
ITEM = "item_id"
SCORE = "score"
RANK = "rank"
WINDOW = "window"
WEIGHT = "weight"
CATEGORY = "category"
COUNT = "count"
TIMESTAMP = "timestamp"
QUANTITY = "quantity"
PRICE = "price"
NAME = "name"
BUCKET = "bucket"
TRAINED_UNTIL = "trained_until"
ALL = (
    USER, ITEM, TIMESTAMP, SCORE, RANK, WINDOW, WEIGHT, CATEGORY, COUNT, QUANTITY, PRICE, NAME,
    BUCKET, TRAINED_UNTIL,
)  # fmt: skip
