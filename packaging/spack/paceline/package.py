# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A recipe for Spack, in a repository of the site's own: copy this directory below
`packages/`, and name the source: `spack install paceline` with `git` set, or a checkout with
`spack develop`."""

from spack.package import *


class Paceline(Package):
    """TCP for parallel and distributed computing, adapted per job on a stock kernel."""

    # The site's mirror of the source: there is no public one that this file could name.
    git = "file:///path/to/paceline"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("llvm@14: +clang", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("elfutils")
    depends_on("zlib-api")

    conflicts("platform=darwin", msg="Paceline needs Linux")
    conflicts("platform=windows", msg="Paceline needs Linux")

    def setup_build_environment(self, env):
        env.set("CLANG", self.spec["llvm"].prefix.bin.clang)
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def install(self, spec, prefix):
        # What `make install` does, without the distribution's packages.
        env["PREFIX"] = prefix
        Executable(join_path("scripts", "install.sh"))()
