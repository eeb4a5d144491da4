"""How bytes go out: routes beside the dashboard's pages, and the headers of all answers.

A page draws widgets; it is no way for large files, which its framework would hold in memory whole. These routes stream.
"""
