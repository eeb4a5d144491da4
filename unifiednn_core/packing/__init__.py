"""What must a network be like to be handed in? Python code becomes one checked `.pt2` file, on its owner's machine."""
