# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by the other scripts: the repository's root, the PATH, small functions.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A shell that is not a login shell often lacks both: rustup's tools, and the
# system's (ip, tc, modprobe).
export PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:/usr/local/sbin:/usr/sbin:/sbin"

paceline=${CARGO_TARGET_DIR:-target}/release/paceline

fail() { # message...: ends the script with status 2
	printf '%s\n' "$@" >&2
	exit 2
}

as_root() { # command...
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		fail "this needs root, and there is no sudo: $*"
	fi
}

heading() { # text: what comes next, and when
	printf '\n== %s (%d:%02d)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60))
}

has_cargo_tool() { # cargo subcommand: whether it is there; in CI it must be
	cargo "$1" --version >/dev/null 2>&1 && return
	[ "${CI:-}" != true ] || fail "cargo $1 is not installed; in CI it must be"
	echo "skipped: cargo $1 is not installed"
	return 1
}

build() { # [cargo options]: one profile for everything, so that dependencies are compiled once
	cargo build --release --locked --workspace "$@"
	make --no-print-directory -C mpi OUT="$(realpath "$(dirname "$paceline")")"
}
