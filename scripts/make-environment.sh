#!/bin/sh
# Makes the virtual environment FOLDER with what requirements.txt lists, using the interpreter PYTHON. Does nothing if the
# folder was completed for the same requirements before.
#
#   scripts/make-environment.sh FOLDER PYTHON
set -eu

folder=$1
python=$2
requirements=$(dirname "$0")/../requirements.txt
stamp=$folder/hp-requirements.$(sha256sum <"$requirements" | cut -c1-16)

if [ -e "$stamp" ] && [ -x "$folder/bin/python" ]; then
  exit 0
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "error: '$python' is not Python 3.11 or later; name another with PYTHON=..." >&2
  exit 1
fi
echo "installing Python packages in $folder: about 5 GB, most of it LibTorch and what it loads"
rm -f "$folder"/hp-requirements.*
if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
  "$python" -m venv --clear "$folder"
fi
"$folder/bin/python" -m pip install --disable-pip-version-check --progress-bar off -r "$requirements"
touch "$stamp"
