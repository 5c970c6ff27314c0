#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints the list of components linked into the programs of Paceline (SBOM, CycloneDX 1.6), from
cargo's own resolution of Cargo.lock. Its time is SOURCE_DATE_EPOCH, its number follows from its
content: the same source gives the same bytes."""

import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import uuid

TOP = pathlib.Path(__file__).resolve().parent.parent
# scripts/setup.sh puts it there.
sys.path.insert(0, str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target")) / "cyclonedx"))

from cyclonedx.model import HashAlgorithm, HashType  # noqa: E402
from cyclonedx.model.bom import Bom  # noqa: E402
from cyclonedx.model.component import Component, ComponentType  # noqa: E402
from cyclonedx.model.license import LicenseExpression  # noqa: E402
from cyclonedx.output import make_outputter  # noqa: E402
from cyclonedx.schema import OutputFormat, SchemaVersion  # noqa: E402
from cyclonedx.validation.json import JsonStrictValidator  # noqa: E402
from packageurl import PackageURL  # noqa: E402

# The packages whose programs and libraries are installed.
INSTALLED = ["paceline-cli", "paceline-phase"]


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=TOP, check=True, capture_output=True, text=True).stdout


def main():
    host = next(line.split()[1] for line in subprocess.run(
        ["rustc", "-vV"], check=True, capture_output=True, text=True).stdout.splitlines() if line.startswith("host:"))
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--locked", "--filter-platform", host))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    lock = {}
    entry = {}
    for line in (TOP / "Cargo.lock").read_text(encoding="utf-8").splitlines():
        if line == "[[package]]":
            entry = {}
        elif " = \"" in line:
            key, value = line.split(" = ", 1)
            entry[key] = value.strip('"')
            if key == "checksum":
                lock[entry["name"], entry["version"]] = entry["checksum"]

    # Dependencies of tests are in no program; build dependencies may leave code in it.
    todo = [package["id"] for package in metadata["packages"] if package["name"] in INSTALLED]
    linked = set()
    while todo:
        at = todo.pop()
        if at in linked:
            continue
        linked.add(at)
        for dependency in nodes[at]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])

    components = {}
    for at in linked:
        package = packages[at]
        name, version = package["name"], package["version"]
        checksum = lock.get((name, version))
        own = package["source"] is None
        components[at] = Component(
            type=ComponentType.LIBRARY, name=name, version=version,
            bom_ref=f"{name}@{version}",
            purl=None if own else PackageURL("cargo", None, name, version),
            licenses=[LicenseExpression(package["license"].replace("/", " OR "))] if package["license"] else None,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else None)
    version = next(package["version"] for package in metadata["packages"] if package["name"] == INSTALLED[0])
    program = Component(type=ComponentType.APPLICATION, name="paceline", version=version, bom_ref="paceline",
                        licenses=[LicenseExpression("(Apache-2.0 OR MIT) AND GPL-2.0-only")])
    bom = Bom(components=components.values())
    bom.metadata.component = program
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    bom.register_dependency(program, [components[at] for at in linked if packages[at]["name"] in INSTALLED])
    for at in linked:
        below = [components[one["pkg"]] for one in nodes[at]["deps"] if one["pkg"] in linked
                 and any(kind["kind"] != "dev" for kind in one["dep_kinds"])]
        bom.register_dependency(components[at], below)
    content = "\n".join(sorted(f"{component.bom_ref.value}" for component in components.values()))
    bom.serial_number = uuid.UUID(bytes=hashlib.sha256(content.encode()).digest()[:16], version=5)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        sys.exit(f"sbom: not valid: {wrong}")
    print(text)


if __name__ == "__main__":
    main()
