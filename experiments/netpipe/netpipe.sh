#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Debian's NetPIPE: netpipe.sh serve, netpipe.sh ask HOST. It writes its table to stderr, and
# a file of its own, np.out.
case $1 in
serve)
	command -v NPtcp >/dev/null || exit 127
	# It serves one connection, and ends with an error when that is closed.
	while :; do NPtcp; done
	;;
ask) exec NPtcp -h "$2" -u 1048576 2>&1 ;;
*)
	echo "usage: netpipe.sh serve | ask HOST" >&2
	exit 2
	;;
esac
