#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds the Debian package, a tarball of the same files, where rpmbuild is installed an .rpm of
# them, too, a wheel of the Python module with its library, and the list of linked components (SBOM, CycloneDX), into target/package or the directory given. The same source, compiler and
# packages give the same bytes, wherever it is built.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/stage.sh

built=${CARGO_TARGET_DIR:-target}
out=${1:-$built/package}
command -v dpkg-shlibdeps >/dev/null || fail "dpkg-shlibdeps is missing: apt-get install dpkg-dev"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
# MAINTAINER names the maintainer of a package that is built for others. Without it the package
# is for this host alone, and its name shows that (RFC 2606 reserves the domain).
maintainer=${MAINTAINER:-Nobody yet <unreleased@paceline.invalid>}
# Times in archives: that of the last commit, not of the build.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export LC_ALL=C TZ=UTC
umask 022

mkdir -p "$built"
# BUILT: a directory with the built programs.
if [ -n "${BUILT:-}" ]; then
	paceline=$BUILT/paceline
else
	# Folders of this machine are in no file.
	here=$PWD
	home=${CARGO_HOME:-$HOME/.cargo}
	target=$(realpath "$built")
	export RUSTFLAGS="--remap-path-prefix=$here=/paceline --remap-path-prefix=$home=/cargo --remap-path-prefix=$target=/target"
	export CFLAGS="-O2 -g -ffile-prefix-map=$here=/paceline -ffile-prefix-map=$home=/cargo -ffile-prefix-map=$target=/target"
	build
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/paceline
name=paceline-$version-$(uname -m)
mkdir -p "$out"
rm -f "$out"/paceline[-_]* "$out"/paceline.cdx.json
stage "$root/usr" /usr
python3 scripts/sbom.py >"$work/paceline.cdx.json"

for file in bin/paceline lib/libpaceline.so lib/paceline/libpaceline-mpi.so lib/paceline/libpaceline-yield.so; do
	strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/$file"
done

# What Debian wants besides.
document() { install -D -m 644 "$1" "$root/usr/share/doc/paceline/$2"; }
document packaging/debian/copyright copyright
document "$work/paceline.cdx.json" paceline.cdx.json
document CHANGELOG.md changelog
cat >"$work/changelog" <<LOG
paceline ($version-1) unstable; urgency=medium

  * Release $version: see changelog.gz.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
LOG
document "$work/changelog" changelog.Debian
gzip -9n "$root"/usr/share/doc/paceline/changelog*
install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/paceline"
mkdir "$root/DEBIAN"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$root/DEBIAN/"
install -m 644 packaging/debian/triggers "$root/DEBIAN/triggers"

# Which of the distribution's libraries the programs need, and since which version.
mkdir "$work/debian"
printf 'Source: paceline\n\nPackage: paceline\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info \
	paceline/usr/bin/paceline paceline/usr/lib/libpaceline.so paceline/usr/lib/paceline/*-*.so 2>/dev/null \
	| sed -n 's/^shlibs:Depends=//p')
sed -e "s/@MAINTAINER@/$maintainer/" -e "s/@VERSION@/$version-1/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/$depends/" \
	-e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f 1)/" \
	packaging/debian/control.in >"$root/DEBIAN/control"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
# LEVEL: of xz; 0 to try the script.
level=${LEVEL:-6}
# One thread: more cut the archive elsewhere, by the machine's number.
dpkg-deb --root-owner-group -Zxz -z"$level" --threads-max=1 --build "$root" "$out/paceline_$version-1_$architecture.deb" >/dev/null

# The same files for other systems, below any prefix. `scripts/install.sh` puts
# the prefix into the units; here they have /usr.
mv "$root/usr" "$work/$name"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=posix \
	--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -C "$work" -c "$name" \
	| xz -T1 -"$level" >"$out/$name.tar.xz"
install -m 644 "$work/paceline.cdx.json" "$out/paceline.cdx.json"

# The wheel: the Python module with the library, from a copy, so that no build is left in the source.
cp -r python "$work/python"
rm -rf "$work/python/paceline/__pycache__"
isolated=
# Debian's python3-hatchling if it is there; else pip fetches it.
python3 -c 'import hatchling' 2>/dev/null && isolated=--no-build-isolation
PACELINE_WHEEL_LIBRARY=$work/$name/lib/libpaceline.so PIP_ROOT_USER_ACTION=ignore \
	python3 -m pip --quiet --disable-pip-version-check wheel --no-deps $isolated -w "$out" "$work/python"

# The .rpm: the same files at the places that its distributions have for them.
if command -v rpmbuild >/dev/null; then
	tree=$work/rpm
	mkdir -p "$tree"
	cp -a "$work/$name" "$tree/usr"
	rm -r "$tree/usr/share/lintian" "$tree"/usr/share/doc/paceline/{copyright,changelog*}
	mkdir -p "$tree/usr/lib64" "$tree/usr/share/licenses/paceline" "$tree/usr/share/paceline/python" "$tree/usr/share/zsh/site-functions"
	mv "$tree/usr/lib/libpaceline.so" "$tree/usr/lib64/"
	ln -sf ../../lib64/libpaceline.so "$tree/usr/lib/paceline/libpaceline.so"
	mv "$tree/usr/lib/python3/dist-packages/paceline" "$tree/usr/share/paceline/python/"
	rm -r "$tree/usr/lib/python3"
	mv "$tree/usr/share/zsh/vendor-completions/_paceline" "$tree/usr/share/zsh/site-functions/"
	rmdir "$tree/usr/share/zsh/vendor-completions"
	# There, rpm finds the dependencies of a library only if it is executable.
	chmod 755 "$tree"/usr/lib64/*.so "$tree"/usr/lib/paceline/*-*.so
	install -m 644 LICENSE-APACHE LICENSE-MIT LICENSE-GPL-2.0 "$tree/usr/share/licenses/paceline/"
	install -m 644 CHANGELOG.md "$tree/usr/share/doc/paceline/"
	files=$(cd "$tree" && find usr ! -type d | sed -e 's|^|/|' -e 's|^/usr/share/doc/|%doc &|' -e 's|^/usr/share/licenses/|%license &|' | sort)
	awk -v version="$version" -v maintainer="$maintainer" -v tree="$tree" -v files="$files" '{
		gsub(/@VERSION@/, version); gsub(/@MAINTAINER@/, maintainer); gsub(/@TREE@/, tree); gsub(/@FILES@/, files); print
	}' packaging/rpm/paceline.spec.in >"$work/paceline.spec"
	rpmbuild -bb --quiet --define "_topdir $work/rpmbuild" --define "_rpmdir $out" --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
		--define "_buildhost reproducible" --define "use_source_date_epoch_as_buildtime 1" \
		--define "clamp_mtime_to_source_date_epoch 1" --define "_binary_payload w${level}.xzdio" \
		--define "debug_package %{nil}" --define "__os_install_post %{nil}" --define "_build_id_links none" "$work/paceline.spec" >"$work/rpm.log" 2>&1 ||
		fail "rpmbuild: $(cat "$work/rpm.log")"
fi
shopt -s nullglob
(cd "$out" && sha256sum paceline_*.deb paceline-*.rpm paceline-*.tar.xz paceline-*.whl paceline.cdx.json | tee paceline-sha256sums)
