"""The service: runs, library, comparisons, people, and the permissions on them."""
