"""The text that `sandbox profile new` writes: every key once, with what it is for."""

from __future__ import annotations

TEMPLATE = """\
# The profile {name}: `sandbox {name} [arguments…]` runs its program in a sandbox. docs/agents.md describes every key.
{note}
description: what it is, in a few words
program: {name}                    # its name on your PATH
install: npm install -g {name}     # shown to people who do not have it

hosts:                             # what it may connect to, and what for; nothing else can be reached
  api.example.com: the model
# without: {{update.example.com: updates}}   # hosts it tries but does not need: refused quietly
network: closed                    # closed | registries (package registries, source hosts) | open (all public hosts)

keep: [.{name}]                    # directories of the home to keep; "." is the whole home. Your own are never shown.
per_project: true                  # false: one kept home for all projects
# project_state: [.{name}]         # directories of the project: what it writes there is kept outside it
# seed:                            # files that the first run starts with: your settings, without secrets
#   .{name}/settings.json: {{only: [model, theme], set: {{onboarded: true}}}}
#   .{name}/commands/: {{}}        # a directory of text files

# credentials:                     # keys and logins; inside are placeholders (docs/secrets.md)
#   {name}:
#     variables:
#       EXAMPLE_API_KEY: {{hosts: [api.example.com]}}

# environment: {{EXAMPLE_NO_UPDATE: "1"}}
# pass: [EXAMPLE_THEME]            # variables of yours that it gets
# flags: [--no-sandbox]            # always given: those that switch its own sandbox off
# trust_flags: [--yes]             # with --trust: those that skip its permission prompts
# trust_environment: {{EXAMPLE_MODE: auto}}
# own_options: [--config]          # its options that `sandbox run` has too: the program gets them
# instructions: .{name}/AGENTS.md  # where it reads instructions; a note there says that it runs in a sandbox
"""
INSTEAD = (
    "# It replaces the profile of that name that comes with sandbox."
)


def template(name: str, *, like: bool) -> str:
    """The template for `name`; `like`: whether a packaged profile has that name too."""
    return TEMPLATE.format(name=name, note=INSTEAD.format(name=name) if like else "")
