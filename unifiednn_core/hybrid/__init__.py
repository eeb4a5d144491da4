"""How are networks merged, and separated again?"""
