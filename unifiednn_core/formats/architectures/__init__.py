"""Networks by name, for model files that hold weights alone.

Each family is one file that imports only torch and the standard library (`huggingface` needs transformers too), so that
users get it beside their weights: `from architecture import build`.
"""
