"""How does a step run?"""
