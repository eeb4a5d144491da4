"""The drill on a cluster: two hosts with an agent each on one machine, one database, and faults between all of them."""
