"""What a Reranker adds to the biases: personal terms and wider lists."""
