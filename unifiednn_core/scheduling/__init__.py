"""Who trains next? Policies look at a frozen view and decide; they never act."""
