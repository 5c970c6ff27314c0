#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The Debian package: lintian; the same bytes when packed twice; the same files as `make
# install`; installed, upgraded, removed and purged in a throw-away root. Needs root for the
# last. Argument: directory with the built programs (default target/release).
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "${1:-target/release}")
export BUILT=$built LEVEL=0 TZ=UTC

place=$(mktemp --directory /tmp/paceline-package.XXXXXX)
trap 'rm -rf "$place"' EXIT
fail() {
	echo "FAILED: $*"
	exit 1
}

echo "== packed twice, the same bytes"
scripts/package.sh "$place/1" >/dev/null
# The packager's umask and time zone do not affect any file.
(umask 077 && TZ=Asia/Tokyo scripts/package.sh "$place/2" >/dev/null)
(cd "$place/1" && sha256sum --check --quiet paceline-sha256sums)
for file in "$place"/1/*; do
	cmp "$file" "$place/2/$(basename "$file")" || fail "$file differs"
done
package=$(echo "$place"/1/paceline_*.deb)

echo "== lintian"
if command -v lintian >/dev/null; then
	lintian --allow-root --fail-on error "$package" >"$place/lintian" || fail "$(cat "$place/lintian")"
	! grep -q '^E:' "$place/lintian" || fail "$(cat "$place/lintian")"
	cat "$place/lintian"
else
	[ "${CI:-}" != true ] || fail "lintian is not installed"
	echo "skipped: lintian is not installed"
fi

echo "== the .rpm"
rpm=("$place"/1/*.rpm)
if [ -e "${rpm[0]}" ]; then
	# A separate root, with its own database.
	database() { rpm --root "$place/rpm" "$@"; }
	mkdir -p "$place/rpm"
	database --initdb
	database --install --nodeps --noscripts --nosignature "${rpm[0]}"
	database --verify --nodeps --noscripts paceline || fail "what is installed is not what the package has"
	"$place/rpm/usr/bin/paceline" --version
	[ -e "$place/rpm/usr/lib/paceline/libpaceline.so" ] || fail "the shim does not find the library"
	rpm --query --package --nosignature --requires "${rpm[0]}" | grep -q 'libc.so.6(GLIBC' || fail "no library is required"
	database --erase --nodeps --noscripts paceline
	left=$(find "$place/rpm/usr" ! -type d | grep -v -e /lib/sysimage/ || :)
	[ -z "$left" ] || fail "left: $left"
	if command -v rpmlint >/dev/null; then
		rpmlint --config packaging/rpm/rpmlintrc.toml "${rpm[0]}" >"$place/rpmlint" || fail "$(cat "$place/rpmlint")"
		tail -n 1 "$place/rpmlint"
	else
		echo "skipped: rpmlint is not installed"
	fi
else
	[ "${CI:-}" != true ] || fail "rpmbuild is not installed"
	echo "skipped: rpmbuild is not installed"
fi

echo "== the package has the files of make install, and documents"
dpkg-deb -x "$package" "$place/package"
DESTDIR=$place/install PREFIX=/usr scripts/install.sh >/dev/null
list() { (cd "$1" && find . ! -type d | grep -v -e ^./usr/share/doc/ -e ^./usr/share/lintian/ | sort); }
diff <(list "$place/install") <(list "$place/package") || fail "files differ"
while IFS= read -r file; do
	case $file in
	*.so | ./usr/bin/paceline) ;; # stripped
	*) [ -L "$place/package/$file" ] || cmp "$place/install/$file" "$place/package/$file" || fail "$file" ;;
	esac
done < <(list "$place/package")
DESTDIR=$place/local PREFIX=/usr/local scripts/install.sh >/dev/null
grep -q '^ExecStart=/usr/local/bin/paceline ' "$place/local/usr/local/lib/systemd/system/paceline-agent.service" ||
	fail "the unit's path"
! grep -rq /usr/local "$place/package/usr/lib/systemd" || fail "a unit of the package names /usr/local"
man=$place/package/usr/share/man/man1
for page in paceline paceline-run paceline-gateway-serve; do
	zcat "$man/$page.1.gz" | grep -q '^\.SH SYNOPSIS' || fail "man page $page"
done
! ls "$man" | grep -q generate || fail "a hidden command has a man page"
bash -c "source '$place/package/usr/share/bash-completion/completions/paceline' && complete -p paceline" >/dev/null ||
	fail "bash does not take the completions"

if [ "$(id -u)" -ne 0 ]; then
	echo "skipped: installing it needs root"
	exit
fi

echo "== installed, upgraded, removed, purged"
dpkg-deb -R "$package" "$place/next"
sed -i 's/^Version: .*/Version: 99.0-1/' "$place/next/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$place/next" "$place/next.deb" >/dev/null
cp "$package" "$place/this.deb"
# This machine's root, and a layer above it that takes all changes.
mkdir "$place/layers"
unshare --mount --pid --fork bash -eu -s "$place" <<'INSIDE' || fail "in the throw-away root"
place=$1
mount --make-rprivate /
mount -t tmpfs none "$place/layers"
mkdir "$place"/layers/{changes,work,root}
root=$place/layers/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/layers/changes,workdir=$place/layers/work" "$root"
mount -t proc none "$root/proc"
mount --bind /dev "$root/dev"
cp "$place/this.deb" "$place/next.deb" "$root/tmp/"
within() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
fail() { echo "$*"; exit 1; }
find_ours() { # what is left of it, of which no other package is the owner
	(cd "$place/layers/changes" && find . -type f ! -path './var/lib/dpkg/*' ! -path './var/log/*' \
		! -path './var/cache/*' ! -path './tmp/*' ! -path './etc/group*' ! -path './etc/gshadow*' \
		! -path './etc/.pwd.lock' ! -path './run/systemd/*' ! -path './etc/ld.so.cache' | sort)
}
! within getent group paceline >/dev/null || within groupdel paceline
within dpkg --install /tmp/this.deb >"$place/dpkg" 2>&1 || fail "$(cat "$place/dpkg")"
within paceline --version | grep -q '^paceline '
within getent group paceline >/dev/null || fail "no group paceline"
within ldconfig -p | grep -q 'libpaceline.so ' || fail "the linker does not know the library"
within python3 -B -c 'import sys; sys.path.append("/usr/lib/python3/dist-packages"); import paceline'
within systemd-analyze verify --man=no paceline-agent.service paceline-agent.socket paceline-gateway.service 2>&1 |
	grep -i paceline && fail "systemd has objections to the units"
mkdir "$root/etc/paceline"
echo 'groups = ["paceline"]' >"$root/etc/paceline/agent.toml"
within dpkg --install /tmp/next.deb >"$place/dpkg" 2>&1 || fail "$(cat "$place/dpkg")"
[ "$(within dpkg-query -W -f '${Version}' paceline)" = 99.0-1 ] || fail "not upgraded"
[ -f "$root/etc/paceline/agent.toml" ] || fail "the upgrade has removed the configuration"
within dpkg --remove paceline >"$place/dpkg" 2>&1 || fail "$(cat "$place/dpkg")"
[ "$(find_ours)" = ./etc/paceline/agent.toml ] || fail "after removal: $(find_ours)"
within dpkg --purge paceline >"$place/dpkg" 2>&1 || fail "$(cat "$place/dpkg")"
[ -z "$(find_ours)" ] || fail "after purging: $(find_ours)"
! within dpkg-query -W paceline 2>/dev/null | grep -q . || fail "dpkg knows it still"
INSIDE
echo "all of it holds"
