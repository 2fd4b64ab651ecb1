"""Package managers: the files by which each is known, the hosts it fetches from, and its commands.

One row per tool; of the tools of one language in one directory the first that is found counts. Every host is one of the
preset `registries` (config/network_presets.py), and every cache one of config/caches.py; tests hold them to it.
"""

from __future__ import annotations

from dataclasses import dataclass

PYPI = ("pypi.org", "files.pythonhosted.org")
NPM = ("registry.npmjs.org",)
_VENV = "sh -c 'python3 -m venv .venv && .venv/bin/pip install {what}'"


@dataclass(frozen=True)
class Tool:
    """`install` fetches what the project needs; `test` runs its tests, without network."""

    name: str
    language: str
    files: tuple[str, ...]
    hosts: tuple[str, ...]
    install: str
    test: str = ""
    caches: tuple[str, ...] = ()


TOOLS = (
    Tool("uv", "Python", ("uv.lock",), PYPI, "uv sync", "uv run --offline pytest", ("uv",)),
    Tool("Poetry", "Python", ("poetry.lock",), PYPI, "poetry install", "poetry run pytest"),
    Tool("PDM", "Python", ("pdm.lock",), PYPI, "pdm sync", "pdm run pytest"),
    Tool("Pipenv", "Python", ("Pipfile.lock", "Pipfile"), PYPI, "pipenv install", "pipenv run pytest", ("pip",)),
    Tool(
        "pip",
        "Python",
        ("requirements.txt",),
        PYPI,
        _VENV.format(what="-r requirements.txt"),
        ".venv/bin/python -m pytest",
        ("pip",),
    ),
    Tool(
        "pip",
        "Python",
        ("pyproject.toml", "setup.py", "setup.cfg"),
        PYPI,
        _VENV.format(what="-e ."),
        ".venv/bin/python -m pytest",
        ("pip",),
    ),
    Tool("pnpm", "JavaScript", ("pnpm-lock.yaml",), NPM, "pnpm install --frozen-lockfile", "pnpm test", ("pnpm",)),
    Tool("Yarn", "JavaScript", ("yarn.lock",), ("registry.yarnpkg.com",), "yarn install", "yarn test"),
    Tool("Bun", "JavaScript", ("bun.lock", "bun.lockb"), NPM, "bun install --frozen-lockfile", "bun run test"),
    Tool("npm", "JavaScript", ("package-lock.json", "npm-shrinkwrap.json"), NPM, "npm ci", "npm test", ("npm",)),
    Tool("npm", "JavaScript", ("package.json",), NPM, "npm install", "npm test", ("npm",)),
    Tool("Deno", "Deno", ("deno.lock", "deno.json", "deno.jsonc"), ("jsr.io", "npm.jsr.io", *NPM), "deno install"),
    Tool(
        "Cargo",
        "Rust",
        ("Cargo.toml",),
        ("index.crates.io", "static.crates.io"),
        "cargo fetch",
        "cargo test --offline",
        ("cargo",),
    ),
    Tool("Go", "Go", ("go.mod",), ("proxy.golang.org", "sum.golang.org"), "go mod download", "go test ./...", ("go",)),
    Tool(
        "Maven",
        "Java",
        ("pom.xml",),
        ("repo.maven.apache.org",),
        "mvn dependency:go-offline",
        "mvn -o test",
        ("maven",),
    ),
    Tool(
        "Gradle",
        "Java",
        ("gradlew", "build.gradle", "build.gradle.kts"),
        ("repo.maven.apache.org", "plugins.gradle.org", "services.gradle.org", "downloads.gradle.org"),
        "./gradlew dependencies",
        "./gradlew --offline test",
    ),
    Tool("Bundler", "Ruby", ("Gemfile.lock", "Gemfile"), ("rubygems.org", "index.rubygems.org"), "bundle install"),
    Tool(
        "Composer",
        "PHP",
        ("composer.lock", "composer.json"),
        ("repo.packagist.org", "github.com", "codeload.github.com"),
        "composer install",
    ),
    Tool("Mix", "Elixir", ("mix.lock", "mix.exs"), ("repo.hex.pm",), "mix deps.get"),
    Tool("pub", "Dart", ("pubspec.yaml",), ("pub.dev",), "dart pub get"),
)
