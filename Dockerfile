# One image for a server and for nodes, with or without GPUs: docker build --tag unifiednn .
# docs/OPERATE.md says how to run it on one machine, docs/CLUSTER.md on several.
FROM python:3.12-slim
# PyPI's torch brings CUDA and also runs without a GPU; https://download.pytorch.org/whl/cpu has a smaller one without it.
ARG TORCH_INDEX=https://pypi.org/simple
# bubblewrap confines workers where the container may make namespaces; with tcmalloc they need about a fifth less memory.
# socat lets docker-compose.yml publish the dashboard, which listens on 127.0.0.1 of its container alone.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap libtcmalloc-minimal4 socat \
 && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir --no-deps --index-url "$TORCH_INDEX" "$(grep '^torch==' /src/constraints.txt)" \
 && pip install --no-cache-dir --constraint /src/constraints.txt '/src[login,ray]' \
 && useradd --create-home --uid 1000 unifiednn
USER unifiednn
# NVML names processes by their ids on the host: without `docker run --pid=host` the figures are those of the whole GPU.
ENV UNIFIEDNN_HOME=/home/unifiednn/home
RUN mkdir --mode=700 /home/unifiednn/home /home/unifiednn/ray
VOLUME /home/unifiednn/home
WORKDIR /home/unifiednn
ENTRYPOINT ["unifiednn"]
CMD ["app"]
