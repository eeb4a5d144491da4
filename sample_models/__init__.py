"""Small untrained networks and real data to try the product with; `python -m sample_models.build` writes them."""
