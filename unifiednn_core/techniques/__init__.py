"""Ways to train one network in less memory, one file each. They change a step, and know no loop around it."""
