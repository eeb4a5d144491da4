"""The drill: kills the processes of a real server again and again, and audits what is left."""
