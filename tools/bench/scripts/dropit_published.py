"""DropIT as published, each layer by itself, without a hybrid."""

from tools.bench.scripts.dropit import train

if __name__ == "__main__":
    train("published")
