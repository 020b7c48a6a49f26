# CPU:  docker build -t ips .
# GPU:  docker build -t ips --build-arg BACKEND=cu126 .
# The backend is one that uv knows, see `uv pip install --help`. PyTorch brings CUDA itself; the host needs a driver and
# NVIDIA's container toolkit.
FROM python:3.11-slim

ARG BACKEND=cpu

WORKDIR /opt/ips
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir uv \
    && uv pip install --system --no-cache --torch-backend="$BACKEND" ".[all]" \
    && useradd --create-home ips

USER ips
WORKDIR /work
ENTRYPOINT ["ips"]
