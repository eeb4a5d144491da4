"""One network as a pipeline of consecutive stages: PipeDream, and the schedules of torch."""
