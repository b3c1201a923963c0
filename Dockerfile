# The service and the daily job in one image: no compiler, no root, and kernels that are compiled
# when the image is built, so that a container answers at once.
#
#   docker build --tag trimtab .
#   docker run --rm --publish 8000:8000 --volume store:/store --env TRIMTAB_TOKEN=... trimtab
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/trimtab \
    && /opt/trimtab/bin/pip install --no-cache-dir --constraint constraints.txt ".[serve,sql]"

FROM python:3.13-slim
# The cache of kernels is for one kind of processor: "generic" is every 64-bit one.
ENV PATH=/opt/trimtab/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    XDG_CACHE_HOME=/var/cache/trimtab
RUN useradd --uid 10001 --create-home trimtab \
    && mkdir /store /var/cache/trimtab \
    && chown trimtab: /store /var/cache/trimtab
COPY --from=build /opt/trimtab /opt/trimtab
USER 10001
RUN python -m trimtab.compile
WORKDIR /home/trimtab
VOLUME /store
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["trimtab"]
CMD ["serve", "--store", "/store", "--host", "0.0.0.0"]
