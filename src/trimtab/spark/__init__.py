"""The same on Apache Spark: users in partitions, the local kernels on each of them."""
