"""How much memory, and where?"""
