#!/usr/bin/env bash
# Installs cuzkd into a virtual environment of its own. The Dockerfile and CI run this very script.
#
#   deploy/install.sh PREFIX [EXTRA]      PREFIX: where the environment goes, e.g. /opt/cuzkd
#                                         EXTRA: cuda12 or cuda13 for NVIDIA cards; nothing for the processor
#
# Needs Python 3.11 or newer with venv, and a C++17 compiler. Build tools come from the package registry.
set -euo pipefail

prefix=${1:?usage: deploy/install.sh PREFIX [cuda12|cuda13]}
extra=${2:-}
source_dir=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

case $extra in "" | cuda12 | cuda13) ;; *)
    echo "install.sh: unknown extra '$extra': expected cuda12 or cuda13" >&2
    exit 2
    ;;
esac
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "install.sh: $python is $("$python" -V 2>&1); Python 3.11 or newer is needed (set PYTHON=...)" >&2
    exit 2
}
command -v "${CXX:-g++}" >/dev/null || command -v c++ >/dev/null || command -v clang++ >/dev/null || {
    echo "install.sh: no C++ compiler found (g++, clang++ or \$CXX)" >&2
    exit 2
}

"$python" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet "$source_dir${extra:+[$extra]}"
install -D -m 0644 "$source_dir/README.md" "$prefix/share/doc/cuzkd/README.md"
install -D -m 0644 -t "$prefix/share/doc/cuzkd" "$source_dir"/deploy/cuzkd.toml "$source_dir"/deploy/cuzkd.service "$source_dir"/deploy/prometheus.yml "$source_dir"/deploy/alerts.yml
"$prefix/bin/cuzkd" --version
