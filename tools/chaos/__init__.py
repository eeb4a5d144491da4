"""Does it survive? Trains the demo again and again while processes are killed, and looks at what is left."""
