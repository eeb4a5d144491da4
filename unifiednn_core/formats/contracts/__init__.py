"""What each operator of an exported graph may be called with; `table` has all of them."""
