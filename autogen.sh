#!/bin/sh
# Makes ./configure; run once after a clone.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux m4
autoreconf -fi
