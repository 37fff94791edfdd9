# cuzkd in a container. For NVIDIA cards: docker build --build-arg EXTRA=cuda12 .   and run with --gpus all.
#
#   docker run -v cuzkd-state:/var/lib/cuzkd -v cuzkd-run:/run/cuzkd --ulimit core=0 --ulimit memlock=-1 cuzkd
#
# Clients reach it through the socket in the volume /run/cuzkd. deploy/install.sh does the work; CI runs it without Docker.
FROM python:3.12-slim AS build
ARG EXTRA=""
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN /src/deploy/install.sh /opt/cuzkd "$EXTRA"

FROM python:3.12-slim
COPY --from=build /opt/cuzkd /opt/cuzkd
RUN useradd --system --home-dir /var/lib/cuzkd --shell /usr/sbin/nologin cuzkd \
    && install -d -m 0700 -o cuzkd -g cuzkd /var/lib/cuzkd /run/cuzkd
USER cuzkd
ENV PATH=/opt/cuzkd/bin:$PATH
VOLUME ["/var/lib/cuzkd", "/run/cuzkd"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["cuzkd", "status", "--address", "unix:///run/cuzkd/cuzkd.sock"]
ENTRYPOINT ["cuzkd"]
CMD ["serve", "--state-dir", "/var/lib/cuzkd", "--listen", "unix:///run/cuzkd/cuzkd.sock"]
