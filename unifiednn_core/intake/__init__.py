"""What is this file? Reads model and data files of strangers, without ever running what is in them."""
