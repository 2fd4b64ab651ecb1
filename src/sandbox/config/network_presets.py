"""The hosts of `network.preset`, by preset. This is the one place that lists them.

`registries`: where package managers fetch packages, tool chains and sources. A host is listed for what it serves to
everybody. Anyone with an account on such a host can send data there (docs/network.md).
"""

from __future__ import annotations

REGISTRIES = (
    # Python
    "pypi.org",
    "files.pythonhosted.org",
    "conda.anaconda.org",
    "repo.anaconda.com",
    # JavaScript
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "repo.yarnpkg.com",
    "nodejs.org",
    "jsr.io",
    "npm.jsr.io",
    "deno.land",
    # Rust
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "static.rust-lang.org",
    # Go
    "proxy.golang.org",
    "sum.golang.org",
    "go.dev",
    "dl.google.com",
    # Java
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "services.gradle.org",
    "downloads.gradle.org",
    # Ruby, PHP, .NET, Elixir, Haskell, Dart
    "rubygems.org",
    "index.rubygems.org",
    "repo.packagist.org",
    "packagist.org",
    "api.nuget.org",
    "hex.pm",
    "repo.hex.pm",
    "hackage.haskell.org",
    "pub.dev",
    # Sources
    "github.com",
    "codeload.github.com",
    "raw.githubusercontent.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
    "gitlab.com",
    "bitbucket.org",
    "codeberg.org",
    # Distributions
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
    "dl-cdn.alpinelinux.org",
)

HOSTS: dict[str, tuple[str, ...]] = {"closed": (), "registries": REGISTRIES, "open": ("*",)}
