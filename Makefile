# SPDX-License-Identifier: Apache-2.0 OR MIT
# Each target is one script; read that one to see what it does.
.PHONY: demo demo-live test kernels torture audit bench install package slurm setup setup-test setup-bench

demo: setup          ## what TCP does to bursts after idle, and what Paceline does
	@scripts/demo.sh virtual

demo-live: setup     ## the same on this machine's own kernel, under sudo
	@scripts/demo.sh live

test: setup-test     ## format, lint, tests, and the lab's end-to-end runs
	@scripts/test.sh

kernels: setup       ## the lab on the kernels of Debian's suites, from 6.1 to the newest
	@cargo build --release --locked -p paceline-cli
	@scripts/kernels.sh

torture: setup-test  ## kills at random moments, thousands of short jobs: nothing is left, nothing grows
	@scripts/torture.sh

audit:               ## licences, sources, bans and known faults of what is linked in
	@scripts/audit.sh

bench: setup-bench   ## the full experiments and the cost of Paceline, into results/bench/
	@scripts/bench.sh

install: setup       ## binary, man pages, libraries, header and units, below PREFIX (default /usr/local)
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh

package: setup       ## Debian package, tarball and SBOM, into target/package
	@scripts/setup.sh package
	@scripts/package.sh

slurm:               ## the plugin for Slurm, against the headers that are here
	@$(MAKE) --no-print-directory -C packaging/slurm

setup-bench:         ## and of those to compare it with its peers: ns-3
	@scripts/setup.sh bench

setup-test:          ## and of those to test it: two MPI libraries, Fortran
	@scripts/setup.sh test

setup:               ## installs what is missing of the tools to build and run
	@scripts/setup.sh
