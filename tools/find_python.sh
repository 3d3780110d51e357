#!/bin/sh
# Print the Python of which `make` makes .venv: the one that is given, else the first good one here.
# 3.14 comes last: not every library has a wheel for it.
[ -n "$1" ] || set -- python3 python3.13 python3.12 python3.11 python3.14
ABOUT='import sys
print(f"{sys.version_info[0]}.{sys.version_info[1]}")
assert sys.version_info >= (3, 11)
try:
    import ensurepip, venv
except ImportError:
    print(f"without venv: apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv")
    raise'
found=
for each; do
  if about=$("$each" -c "$ABOUT" 2>/dev/null); then
    echo "$each"
    exit 0
  fi
  [ -z "$about" ] || found="$found${found:+, }$each ($(echo "$about" | paste -sd ' ' -))"
done
echo "jobwire needs Python 3.11, 3.12 or 3.13; found: ${found:-no $*}. Set PYTHON=/path/to/python3.11" >&2
exit 1
