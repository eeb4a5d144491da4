# One image for server and agents: `docker compose up --build`, docs/CLUSTER.md.
FROM python:3.12-slim
# bubblewrap confines workers where the container may make namespaces; with tcmalloc they need about a fifth less memory.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap libtcmalloc-minimal4 \
 && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir --constraint /src/constraints.txt /src \
 && useradd --create-home --uid 1000 unifiednn
USER unifiednn
# Every container has a home of its own: its cache. The volume of the server's also holds what people upload.
ENV UNIFIEDNN_HOME=/home/unifiednn/home
RUN mkdir --mode=700 /home/unifiednn/home
WORKDIR /home/unifiednn
ENTRYPOINT ["unifiednn"]
CMD ["app"]
