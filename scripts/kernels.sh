#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Paceline on the kernels of Debian's suites, in the virtual lab: kernels.sh [--short] [SUITE...]
# --short: experiments/kernels.toml alone, a few seconds each; else start-up, incast, phases,
# coordinated streams and a thousand all-to-all bursts.
#
# A released suite must work. If sid or experimental has no kernel today, the script reports it; a
# failure on experimental's kernel is reported and does not count.
set -euo pipefail
source "$(dirname "$0")/common.sh"

short=false
if [ "${1:-}" = --short ]; then
	short=true
	shift
fi
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie sid experimental)
results=${KERNELS_OUT:-$(mktemp -d)}
[ -n "${KERNELS_OUT:-}" ] || trap 'rm -rf "$results"' EXIT
failed=()

experiment() { # suite, name, arguments of lab run...
	local suite=$1 name=$2
	shift 2
	heading "$suite: $name"
	"$paceline" lab run "$@" --backend virtual --kernel "$suite" --out "$results/$suite/$name" && return
	case $suite in
	experimental) echo "$suite: $name fails on what is not released yet" ;;
	*) failed+=("$suite/$name") ;;
	esac
}

for suite in "${suites[@]}"; do
	status=0
	"$paceline" lab guest --kernel "$suite" -- paceline --version || status=$?
	if [ "$status" -ne 0 ]; then
		case $suite in
		sid | experimental) echo "$suite: no kernel to be had, nothing is decided" ;;
		*) failed+=("$suite/boot") ;;
		esac
		continue
	fi
	if $short; then
		experiment "$suite" kernels experiments/kernels.toml
		continue
	fi
	experiment "$suite" startup experiments/startup-pacing.toml --quick --variant paceline
	experiment "$suite" incast experiments/incast-timeouts.toml --quick
	experiment "$suite" phases experiments/phase-switch.toml --quick --variant paceline
	experiment "$suite" decp experiments/decp-trouble.toml --quick --variant paceline
	experiment "$suite" windows experiments/window-sanity.toml
done

if [ ${#failed[@]} -gt 0 ]; then
	echo "fails: ${failed[*]}" >&2
	exit 1
fi
