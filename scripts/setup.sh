#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs the missing tools to build Paceline and run its lab, on Debian 12 and later and on
# Ubuntu 24.04; with the argument "package" also the tools to package it, with "test" in
# addition the tools to test it, with "bench" also the peers that it is compared with. Prints
# the list before it installs.
# Exit status 2: something is missing that it cannot install.
set -euo pipefail
source "$(dirname "$0")/common.sh"

# What the workspace asks of the compiler, from its one place.
least_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(uname -m)

packages=(
	ca-certificates # cargo and apt-get over HTTPS
	gcc libc6-dev   # libbpf and the linker
	make pkg-config # libbpf
	clang           # the BPF programs
	libclang-dev    # bindgen: the ABI header for Rust
	linux-libc-dev  # linux/bpf.h, linux/types.h
	libelf-dev      # libbpf
	zlib1g-dev      # libbpf
	iproute2        # ip and tc: the lab's hosts and links
	kmod            # modprobe, for the module tcp_bbr
	xz-utils zstd   # the kernel packages' modules are compressed
)
if [ "$architecture" = x86_64 ]; then
	packages+=(qemu-system-x86) # the virtual lab
fi

case ${1:-} in
package | test | bench) packages+=(dpkg-dev git python3 python3-pip python3-hatchling) ;; # its SBOM, below, and wheel
esac

if [ "${1:-}" = test ] || [ "${1:-}" = bench ]; then
	packages+=(
		openmpi-bin libopenmpi-dev # the MPI shim is tried under both
		mpich libmpich-dev
		gfortran # and from Fortran
		python3  # its tests, and those of the Python module
		python3-dev python3-pip # mpi4py, below
		musl-tools # programs with another C library
		slurmctld slurmd slurm-client munge # jobs in steps of Slurm
		nftables curl # hosts routed through a gateway
		openssh-client openssh-server rsync nginx-light postgresql # programs across it
		systemd cpio # the agent as its service, in a guest
		prometheus openssl # checks of the services' metrics
		libslurm-dev libjson-c-dev # the plugin for Slurm
		lintian rpm rpmlint # the packages
	)
fi

if [ "${1:-}" = bench ]; then
	packages+=(
		g++ libns3-dev # ns-3, which the simulator is held against
		haproxy kcptun ethtool # other gateways, and what makes their path honest
		python3-torch # paceline.torch; with what it needs 150 MB to fetch, 640 MB installed
	)
fi

newer() { # have, least: whether version `have` is `least` or newer
	[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

rust_version() { # of the cargo in the PATH; empty if there is none that works
	cargo --version 2>/dev/null | cut -d ' ' -f 2
}

candidate() { # package: the version that apt-get would install; empty if none
	LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | sed 's/^(none)$//'
}

installed() { # package
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# The distribution's stock kernel, which the virtual lab fetches and boots.
kernel_package() {
	if grep -Eqs '^ID(_LIKE)?="?ubuntu' /etc/os-release; then
		echo linux-image-virtual
	else
		echo linux-image-cloud-amd64
	fi
}

have=$(rust_version || true)
rust_missing=false
if [ -z "$have" ] || ! newer "$have" "$least_rust"; then
	rust_missing=true
fi

if ! command -v apt-get >/dev/null; then
	$rust_missing && fail "cargo $least_rust or newer is needed (found: ${have:-none}): https://rustup.rs"
	echo "setup: no apt-get here. Make sure that these, by Debian's names, are installed: ${packages[*]}"
	exit 0
fi

# By env, because sudo drops the variable.
apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@"; }

updated=false
update() { # apt's lists, once
	if ! $updated; then
		echo "setup: apt-get update"
		apt_get update -qq
		updated=true
	fi
}

missing=()
for package in "${packages[@]}"; do
	installed "$package" || missing+=("$package")
done

# Where the compiler comes from: the distribution, if it has one new enough.
rust_packages=()
use_rustup=false
if $rust_missing; then
	if command -v rustup >/dev/null; then
		fail "setup: cargo $least_rust or newer is needed, and this one is ${have:-not set up}. Run:" \
			"    rustup toolchain install stable && rustup default stable"
	fi
	update
	# Debian backports newer compilers under these names for its web browsers;
	# its own rustc is as old as the release (Debian 12: 1.63).
	if newer "$(candidate rustc-web | sed 's/^$/0/')" "$least_rust"; then
		rust_packages=(rustc-web cargo-web rustfmt-web)
		[ -z "$(candidate rust-web-clippy)" ] || rust_packages+=(rust-web-clippy)
	elif newer "$(candidate rustc | sed 's/^$/0/')" "$least_rust"; then
		rust_packages=(rustc cargo rustfmt rust-clippy)
	elif [ -n "$(candidate rustup)" ]; then
		rust_packages=(rustup)
		use_rustup=true
	else
		fail "setup: cargo $least_rust or newer is needed (found: ${have:-none}), and this distribution has none. Run:" \
			"    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y" \
			"and then this command again."
	fi
	missing+=("${rust_packages[@]}")
fi

if [ ${#missing[@]} -gt 0 ]; then
	echo "setup: will install with apt-get: ${missing[*]}"
	if $rust_missing && [ -n "$have" ]; then
		echo "setup: the compiler replaces the one that is there, $have: $least_rust or newer is needed"
	fi
	update
	apt_get install -y --no-install-recommends "${missing[@]}"
fi

if $use_rustup; then
	echo "setup: will install with rustup, for this user: the stable Rust toolchain"
	rustup toolchain install stable --profile minimal --component clippy --component rustfmt
	rustup default stable
fi

# A compiler that was installed may still be hidden by an older one in the PATH.
hash -r
have=$(rust_version || true)
if [ -z "$have" ] || ! newer "$have" "$least_rust"; then
	fail "setup: $(command -v cargo || echo cargo) is ${have:-not there}, and $least_rust or newer is needed." \
		"Put the newer one first in the PATH."
fi

# mpi4py as its users have it: the wheel, which finds the MPI library at run time, and
# one that is built against MPICH, which the wheel does not find under Debian's name.
mpi4py=mpi4py==4.1.2
python_modules=${CARGO_TARGET_DIR:-target}/mpi4py
pip_install() { # directory, arguments of pip install...
	local directory=$python_modules/$1
	shift
	[ ! -d "$directory/${mpi4py/==/-}.dist-info" ] || return 0
	echo "setup: will install with pip, into $directory: $mpi4py"
	# Whole or not at all.
	rm -rf "$directory" "$directory.part"
	python3 -m pip install --quiet --disable-pip-version-check --target "$directory.part" "$@" "$mpi4py"
	mv "$directory.part" "$directory"
}
if [ "${1:-}" = test ]; then
	pip_install openmpi --only-binary :all:
	MPICC=mpicc.mpich CFLAGS=-O0 pip_install mpich --no-binary mpi4py
fi

# The schemas of Kubernetes, for its manifests.
if [ "${1:-}" = test ]; then
	kubernetes=kubernetes-validate==1.37.0
	into=${CARGO_TARGET_DIR:-target}/kubernetes-validate
	if [ ! -d "$into/kubernetes_validate-${kubernetes##*==}.dist-info" ]; then
		echo "setup: will install with pip, into $into: $kubernetes"
		rm -rf "$into" "$into.part"
		python3 -m pip install --quiet --disable-pip-version-check --target "$into.part" "$kubernetes"
		mv "$into.part" "$into"
	fi
fi

# CycloneDX's own library writes and checks the list of linked components.
case ${1:-} in
package | test)
	cyclonedx=cyclonedx-python-lib
	cyclonedx_version=11.12.0
	into=${CARGO_TARGET_DIR:-target}/cyclonedx
	if [ ! -d "$into/${cyclonedx//-/_}-$cyclonedx_version.dist-info" ]; then
		echo "setup: will install with pip, into $into: $cyclonedx $cyclonedx_version"
		rm -rf "$into" "$into.part"
		python3 -m pip install --quiet --disable-pip-version-check --target "$into.part" \
			"$cyclonedx[json-validation]==$cyclonedx_version"
		mv "$into.part" "$into"
	fi
	;;
esac

if [ "$architecture" = x86_64 ]; then
	kernel=$(kernel_package)
	# Without apt's lists (images come without them) the lab cannot find it.
	[ -n "$(candidate "$kernel")" ] || update
	if [ -n "$(candidate "$kernel")" ]; then
		echo "setup: done. The lab fetches the kernel of $kernel $(candidate "$kernel") into its cache, once, and does not install it."
	else
		echo "setup: done, but apt-get knows no $kernel: name a directory with a linux-image package in PACELINE_KERNEL_DEB_DIR, or use lab run --kernel"
	fi
else
	echo "setup: done. The virtual lab runs on x86_64 only, and this is $architecture: use make demo-live"
fi
