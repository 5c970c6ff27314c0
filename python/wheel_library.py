# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Puts libpaceline into the wheel, if PACELINE_WHEEL_LIBRARY names it. That wheel is for
machines of one kind; the module loads the library by ctypes, so any Python 3 will do."""

import os
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelLibrary(BuildHookInterface):
    def initialize(self, version, build_data):
        library = os.environ.get("PACELINE_WHEEL_LIBRARY")
        if not library:
            return
        if not os.path.isfile(library):
            raise FileNotFoundError(f"PACELINE_WHEEL_LIBRARY: no file {library}")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"][os.path.abspath(library)] = "paceline/libpaceline.so"
