# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced: lays out the installed files, for `make install` and for packages.
# shellcheck shell=bash disable=SC2154

stage() { # directory, prefix: everything below the directory as it is below the prefix
	local to=$1 prefix=$2 name zsh=site-functions
	# Where Debian's zsh looks for completions of packages.
	[ "$prefix" != /usr ] || zsh=vendor-completions
	local built
	built=$(dirname "$paceline")
	put() { install -D -m "$1" "$2" "$to/$3"; }
	put 755 "$paceline" bin/paceline
	put 644 include/paceline.h include/paceline.h
	put 644 "$built/libpaceline.so" lib/libpaceline.so
	put 644 "$built/libpaceline-mpi.so" lib/paceline/libpaceline-mpi.so
	put 644 "$built/libpaceline-yield.so" lib/paceline/libpaceline-yield.so
	# The shim looks for the library beside itself: there is one, wherever it is found.
	ln -sf ../libpaceline.so "$to/lib/paceline/libpaceline.so"
	for name in __init__.py torch.py; do
		put 644 "python/paceline/$name" "lib/python3/dist-packages/paceline/$name"
	done
	# Where systemd looks below /usr and /usr/local.
	for name in paceline-agent.service paceline-agent.socket paceline-gateway.service; do
		put 644 "packaging/$name" "lib/systemd/system/$name"
		sed -i -e "s|/usr/local/bin|$prefix/bin|" -e '/^# scripts\/install.sh puts/d' "$to/lib/systemd/system/$name"
	done
	put 644 packaging/paceline.sysusers lib/sysusers.d/paceline.conf
	# Man pages and completions, from the command line's own definition.
	"$paceline" generate man "$to/share/man/man1"
	gzip -9nf "$to"/share/man/man1/*.1
	"$paceline" generate completions "$to/completions"
	put 644 "$to/completions/paceline.bash" share/bash-completion/completions/paceline
	put 644 "$to/completions/paceline.fish" share/fish/vendor_completions.d/paceline.fish
	put 644 "$to/completions/_paceline" "share/zsh/$zsh/_paceline"
	rm -r "$to/completions"
	# For the administrator: dashboard, alert rules, the plugin for Slurm as source.
	for name in prometheus/prometheus.yml prometheus/paceline.rules.yml prometheus/paceline.rules.test.yml \
		grafana/paceline.json; do
		put 644 "contrib/$name" "share/paceline/$name"
	done
	for name in Makefile paceline_spank.c; do
		put 644 "packaging/slurm/$name" "share/paceline/slurm/$name"
	done
	put 755 contrib/slurm/paceline-sweep share/paceline/slurm/paceline-sweep
	for name in paceline.yaml example.yaml chart/Chart.yaml chart/values.yaml chart/values.schema.json \
		chart/templates/account.yaml chart/templates/daemonset.yaml; do
		put 644 "packaging/kubernetes/$name" "share/paceline/kubernetes/$name"
	done
	put 755 packaging/kubernetes/paceline_pods.py share/paceline/kubernetes/paceline_pods.py
	# For editors: the schemas of users' files.
	for name in docs/schemas/*.json; do
		put 644 "$name" "share/paceline/schemas/${name##*/}"
	done
}
