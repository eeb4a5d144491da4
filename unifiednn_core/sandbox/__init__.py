"""What may foreign code touch? A process behind walls that runs a stranger's Python and gives back one `.pt2` file."""
