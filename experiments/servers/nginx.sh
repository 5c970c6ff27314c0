#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# nginx with the files that ask.py asks for, until it is ended.
set -e
for size in 100000 1000000 10000000; do
	head -c $size /dev/zero >$size
done
exec nginx -p "$PWD" -c nginx.conf
