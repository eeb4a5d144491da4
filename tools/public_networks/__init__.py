"""How many public networks the product packs, and whether they train to the bits of their author's own code."""
