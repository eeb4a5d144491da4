"""Streaming routes beside the pages.

A page draws widgets; it is no way for large files, which its framework would hold in memory whole. These routes stream.
"""
