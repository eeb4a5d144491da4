"""What do people see? Plain values that the service hands to pages, terminal and report."""
