"""How does a terminal ask? One file for each kind of command, and what they all show."""
