"""Networks that can be asked for by name, for model files that hold weights alone.

Each family is one file that imports torch and the standard library only (`huggingface` needs transformers, too), so
that it can be handed to a user next to the weights: `from architecture import build`.
"""
