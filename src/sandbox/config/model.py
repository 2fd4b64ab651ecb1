"""The one configuration model. Every foreign spelling (`config/dialects/`) is translated onto it.

Empty allow-lists allow nothing. Field documentation here is what the JSON Schema and `docs/config.md` show.
"""

from sandbox.config import caches
from sandbox.config.section import Section, field
from sandbox.config.signing_section import Signing
from sandbox.config.variables import without_password
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

MODES = ("off", "light", "standard", "max")
ENGINES = (
    "auto",
    "bubblewrap",
    "seatbelt",
    "docker",
    "podman",
    "apple-container",
    "microvm",
    "qemu",
    "firecracker",
    "none",
)
USERS = ("user", "root", "owner")
PRESETS = ("closed", "registries", "open")  # strictest first

# As in UDS. A pattern without a slash matches a name at any depth; a trailing slash means a directory.
SENSITIVE_PATTERNS = [
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*credentials*",
    "*secret*",
    ".aws/",
    ".ssh/",
    ".gnupg/",
]


class Filesystem(Section):
    """Which files a tenant sees, and which of them it may change."""

    # Not a setting: paths that had no links in them when they were checked. A link in one was put there since.
    settled: tuple[str, ...] = ()

    root: str = field(".", "The project: visible at its own path, writable unless `read_only`.")
    also_at: str | None = field(
        None,
        "A directory in /home that leads to the project too, unless something is there; for programs that expect one.",
        parse="state_names.home_directory",
        example="/home/user",
    )
    read_only: bool = field(False, "The project can be read but not changed.")
    overlay: bool = field(False, "Changes to the project go to a separate layer, to be reviewed and applied.")
    show_host: bool = field(
        False,
        "Everything of this machine that `deny_read` does not name can be read, and nothing that is not named"
        " can be changed, as in srt. Unix sockets cannot be made, unless `network.unix_sockets` names one.",
    )
    branch: str | None = field(
        None,
        "The project is a git repository: work on this branch in an overlay, and bring the commits to it afterwards.",
    )
    allow_read: list[str] = field([], "Further paths that can be read.", example=["~/datasets"])
    allow_write: list[str] = field([], "Further paths that can be read and changed.")
    deny_read: list[str] = field([], "Paths that cannot be read; a narrower `allow_read` wins.")
    replaced: dict[str, str] = field(
        {}, "Files by path, and what stands in them inside instead, read-only.", secret=True
    )
    deny_write: list[str] = field([], "Paths that cannot be changed; wins over everything.")
    allow_git_config: bool = field(
        False, "Repositories' `.git/config` can be changed: then they can make git run programs on the host."
    )
    blocked_patterns: list[str] = field(
        SENSITIVE_PATTERNS,
        "Names or paths, as in gitignore, that cannot be read or changed anywhere under the visible paths.",
        parse="patterns.checked",
    )
    allowed_patterns: list[str] = field(
        [".env.example", "**/node_modules/**", "**/site-packages/**"],
        "Exceptions to `blocked_patterns`. Installed packages have certificates and code with such names, not secrets.",
        example=[".env.template"],
        parse="patterns.checked",
    )
    toolchains: bool = field(
        True, "Programs on PATH that live under the home directory (pyenv, nvm, cargo, …) work, read-only."
    )
    programs: list[str] = field(
        [],
        "Programs, wherever they are, whose own directories can be read, so that they run.",
        example=["/srv/x/bin/x"],
    )
    scratch_size: int = field(
        2**30, "Maximum size of each of the sandbox's own /tmp, /run, /dev/shm and home.", parse="units.size"
    )
    ask: bool = field(False, "Ask you when a blocked file is touched; if you allow it, the next attempt succeeds.")


class State(Section):
    """Directories of the tenant's home that are kept from run to run. They are the sandbox's own, never yours."""

    name: str | None = field(
        None, "Whose they are: kept in `state/NAME` under the sandbox home.", parse="state_names.state_name"
    )
    keep: list[str] = field(
        [],
        'Directories, relative to the home; "." is the whole home.',
        parse="state_names.state_paths",
        example=[".config/tool"],
    )
    per_project: bool = field(True, "Each project has its own; otherwise all projects share them.")
    project: list[str] = field(
        [],
        "Dot directories of the project: what is written there is kept for this project, in the state and not there.",
        parse="state_names.project_names",
        example=[".tool"],
    )


class Environment(Section):
    """Which variables a tenant sees."""

    filter_secrets: bool = field(True, "Leave out variables whose names look like secrets.")
    allow: list[str] = field([], "Names or patterns that are passed anyway.", example=["NODE_ENV", "CI"])
    block: list[str] = field([], "Names or patterns that are never passed. Overrides `allow`.", example=["AWS_*"])
    # Secret: `--env NPM_TOKEN` puts the user's own value here, which must not reach the registry or a screen.
    set: dict[str, str] = field(
        {}, 'Values set for the tenant. "${NAME}" of a network secret gives its placeholder.', secret=True
    )

    @classmethod
    def read(cls, data: "Mapping[str, object]", path: str = "") -> "Self":
        """See Section.read. A name with `=` in it would set another variable, bypassing the rules for that one."""
        section = super().read(data, path)
        for name in section.set:
            if not name or "=" in name:
                raise ConfigError(
                    "{name!r} is not a valid variable name", name=name, path=f"{path}.set" if path else "set"
                )
        return section


class Limits(Section):
    """What a sandbox may use. A limit that this machine cannot enforce is an error."""

    memory: int | None = field(None, "Maximum memory of all processes together.", parse="units.memory", example="512m")
    cpus: float | None = field(
        None, "Maximum number of processors; may be a fraction.", parse="units.cpus", example=1.5
    )
    pids: int | None = field(None, "Maximum number of processes and threads.", parse="units.count")
    file_size: int | None = field(None, "Largest file that can be written.", parse="units.size")
    open_files: int | None = field(None, "Maximum number of open files per process.", parse="units.count")
    timeout: float | None = field(None, "Maximum time that a command may run.", parse="units.seconds", example="5m")
    lifetime: float | None = field(
        None,
        "Maximum time that the sandbox lives; then it ends, with everything in it.",
        parse="units.seconds",
        example="2h",
    )
    idle_timeout: float | None = field(
        None,
        "Maximum time that the sandbox lives without a running command, a file operation or a connection from outside.",
        parse="units.seconds",
        example="15m",
    )


class Secret(Section):
    """A credential that the gate puts into requests, from one of `value`, `from_env`, `from_file`, `from_command`,
    `from_keyring`."""

    value: str | None = field(None, "The secret itself. Prefer one of the other sources.", secret=True)
    from_env: str | None = field(None, "A variable of your environment that contains it.")
    from_file: str | None = field(None, "A file that contains it; read again when it changes.")
    from_command: list[str] | None = field(None, "A program of the host that prints it.")
    from_keyring: list[str] | None = field(
        None, "Service and user name in the system's keyring (needs `keyring`).", example=["api.openai.com", "me"]
    )
    json_field: str | None = field(
        None, "With from_file or from_command: where it is in their JSON.", key="field", example="token.access"
    )
    ttl: float | None = field(
        None, "With from_command: how long what it prints is good for.", parse="units.seconds", example="50m"
    )
    expires: str | None = field(None, "With from_command: where in its JSON the end of its life is.")
    hosts: list[str] = field([], "Hosts it may be sent to.", example=["api.openai.com"])
    places: list[str] = field(["header"], "Where it may be put: header, query, body.", key="in")
    placeholder: str | None = field(None, "What the tenant gets instead; made up by default, the same in every run.")

    @classmethod
    def read(cls, data: "Mapping[str, object]", path: str = "") -> "Self":
        """See Section.read. A removed key has its own error. The error for an unknown key does not name it, because
        somebody may have written the secret itself there."""
        if isinstance(data, dict) and "exclusive" in data:
            raise ConfigError(
                "was removed, because it could not be enforced: a host may look for credentials "
                "anywhere in a request; use `network.http` rules or an on_request hook",
                path=f"{path}.exclusive",
            )
        if isinstance(data, dict) and not cls.fields.keys() >= data.keys():
            raise ConfigError("unknown key; known keys: {fields}", fields=", ".join(cls.fields), path=path)
        return super().read(data, path)


class CredentialField(Section):
    """A token in a credential file, and where it may go."""

    hosts: list[str] = field(
        [], "Hosts it may be sent to; `{host}` is the host that a `*` of its path stands for.", example=["{host}"]
    )
    kind: str = field(
        "key",
        "What it is. A `refresh` token goes into requests to the token endpoint alone.",
        choices=("access", "refresh", "id", "key", "password"),
    )
    places: list[str] = field(["header"], "Where it may be put: header, query, body.", key="in")


class Refresh(Section):
    """The token endpoint (OAuth): its answers' tokens stay on the host."""

    hosts: list[str] = field([], "Its hosts.", example=["auth.openai.com"])
    paths: list[str] = field([], "Its paths, exactly.", example=["/oauth/token"])
    logins: list[str] = field([], "Those of them that end a login whatever was asked: a page that is polled.")
    expires: str | None = field(None, "The field of the file that says when the access token ends.")
    expires_as: str = field(
        "ms", "How it says so: milliseconds or seconds since 1970, or ISO 8601.", choices=("ms", "s", "iso")
    )
    refreshed: str | None = field(None, "The field of the file that says when tokens last came (ISO 8601).")
    scope: str | None = field(None, "The field of the file with the token's scopes, a list.")
    keep: list[str] = field(
        [],
        "Strings of an answer that tenants see, besides those that OAuth defines.",
        example=["account.*"],
    )


class Credential(Section):
    """A credential file of yours: inside is the same file, with placeholders where the tokens are."""

    use: str | None = field(None, "A ready-made entry that this one changes; its own name when `file` is not given.")
    file: str | None = field(None, "Your file on the host.", example="~/.claude/.credentials.json")
    at: str | None = field(None, "Where it is inside; by default the same place.")
    format: str = field("json", "How it is written.", choices=("json", "yaml", "toml", "ini", "netrc", "env"))
    tokens: dict[str, CredentialField] = field(
        {},
        "Its tokens by path: keys with dots between (`\\.` in a key); `*` stands for any part of a key.",
        key="fields",
    )
    keep: list[str] = field(
        [], "Paths of strings that tenants see. Every other string is a placeholder that goes nowhere."
    )
    refresh: Refresh = field(Refresh, "Where its tokens are renewed.")
    variables: dict[str, Secret] = field(
        {}, "Secrets by the variable that tenants have them in; without a source, from your variable of that name."
    )
    git: list[str] = field([], "Hosts that git inside gets the first token of `variables` or `fields` for.")
    save_login: bool = field(
        False, "A login made inside is written to your `file`. Otherwise it is kept for sandboxes alone."
    )


class HttpRules(Section):
    """Rules for single requests: `METHOD host/path`, with `*` and `**` as in globs. These hosts are intercepted."""

    allow: list[str] = field([], "Requests that may be made.", example=["GET api.github.com/repos/**"])
    deny: list[str] = field([], "Requests that may not be made. Overrides `allow`.", example=["DELETE *.github.com/**"])


class Network(Section):
    """Which hosts a tenant may connect to. Every attempt is recorded."""

    allowed_hosts: list[str] = field(
        [],
        'Hosts: "name", "*.name" (strict subdomains), "name:port", address, CIDR; "tcp:name:port" is never inspected.',
    )
    preset: str = field(
        "closed",
        "Hosts allowed besides: closed (none), registries (of packages, and source hosts), open (all public ones).",
        choices=PRESETS,
    )
    denied_hosts: list[str] = field([], "Hosts, written in the same way. Overrides `allowed_hosts` and `preset`.")
    block_private_ips: bool = field(True, "Refuse names that resolve to private or link-local addresses.")
    intranet: bool = field(
        False, "Allowed names may resolve to private addresses, but not to loopback ones or to this machine's own."
    )
    allow_localhost: bool = field(True, "The sandbox can use its own loopback.")
    localhost_ports: list[int] = field([], "Ports of the host's loopback that can be reached.", example=[5432])
    publish: list[str] = field([], "Sandbox ports to publish on the host.", example=["127.0.0.1:8080:80"])
    denied_reasons: dict[str, str] = field(
        {}, "What the tenant is told when an entry of `denied_hosts` refuses it, by entry."
    )
    refusals: str = field(
        "explained",
        "How a tenant is refused: with an answer that says why, also inside TLS, or as by srt: TLS fails.",
        choices=("explained", "srt"),
    )
    unix_sockets: list[str] = field(
        [],
        'Unix sockets of the host that programs can connect to; "*" is every one in sight.',
        example=["/run/docker.sock"],
    )
    allow_git: bool = field(True, "git over https and ssh (port 22) to the allowed hosts.")
    http: HttpRules = field(HttpRules, "Rules for single requests.")
    secrets: dict[str, Secret] = field({}, "Credentials by name.")
    policy_script: str | None = field(None, "A Starlark script: on_request, on_response, is_host_allowed.")
    policy_secrets: dict[str, str] = field({}, "The script's `secrets`.", secret=True)
    intercept: bool = field(False, "Intercept every TLS connection, not only where a rule, secret or hook needs it.")
    ca_certificates: list[str] = field([], "Further certificate files that are trusted, inside and by the gate.")
    authority_certificate: str | None = field(
        None, "A file with the authority that intercepted connections show inside, instead of one of our own."
    )
    authority_key: str | None = field(None, "Its private key, a file that the sandbox does not show.")
    strip_response_headers: list[str] = field(
        [], "Fields of responses that tenants do not get; `_` and `.` are the same as `-`.", example=["set-cookie"]
    )
    upstream_proxy: str | None = field(
        None, "A proxy (http://, socks5h://) that every outgoing connection goes through.", shown=without_password
    )
    ask: bool = field(False, "A connection to a host that is not listed waits while you are asked.")
    ask_timeout: float = field(
        30.0, "How long such a connection waits for an answer; then it is refused.", parse="units.seconds", example="1m"
    )
    upstream_exceptions: list[str] = field(
        [], "Hosts, written as in `allowed_hosts`, that are reached without that proxy.", example=["*.corp.example"]
    )
    proxy_socket: str | None = field(
        None, "The Unix socket of a proxy of yours that connections to `proxy_socket_hosts` go through, once allowed."
    )
    proxy_socket_hosts: list[str] = field(
        [], "Those hosts, written as in `allowed_hosts`. Being named here allows none.", example=["api.example.com"]
    )
    gate: str = field(
        "node",
        "Where the gate of a sandbox on another machine is: there, or at the client, who then judges each connection.",
        choices=("node", "client"),
    )


class Tools(Section):
    """Which tools an agent may call: `Write`, `Bash(git:*)`, `Edit(src/**)`, `*`."""

    enforce_agent_permissions: bool = field(True, "Enforce an agent file's allowed-tools and disallowed-tools.")
    allowed: list[str] = field(["*"], "Tools that may be used.")
    disallowed: list[str] = field([], "Tools that may not be used. Overrides `allowed`.")


class Agents(Section):
    """How agents are run."""

    runner: list[str] = field([], "The program that runs an agent whose file names none.")
    hosts: list[str] = field(
        [], "Hosts that the runner itself needs, such as its model's, even for an agent without network tools."
    )
    profile: str | None = field(None, "The profile that agents run with (docs/agents.md).", example="claude")
    allow_no_sandbox: bool = field(False, "Allow `--no-sandbox`. Only the user's own file can set this.")


class Audit(Section):
    """The record. It cannot be switched off."""

    directory: str | None = field(None, "Where it is kept; by default `audit` under the sandbox home.")
    rotate_size: int = field(64 * 2**20, "Maximum size of one file of the record.", parse="units.size")


class DirectMount(Section):
    """A directory of the host, unchanged."""

    host_path: str = field("", "The directory on the host.")
    readonly: bool = field(False, "It cannot be changed.")


class Mount(Section):
    """A directory made by a provider."""

    type: str = field("memory", "Type of the provider.", choices=("memory", "real_fs", "readonly", "overlay", "custom"))
    host_path: str | None = field(None, "For real_fs and readonly: the directory on the host.")
    readonly: bool = field(False, "It cannot be changed.")
    size: int | None = field(None, "For memory: maximum size.", parse="units.size")
    upper: dict[str, object] | None = field(None, "For overlay: where changes go.")
    lower: dict[str, object] | None = field(None, "For overlay: what is under it.")


class Vfs(Section):
    """Directories beside the project."""

    direct_mounts: dict[str, DirectMount] = field({}, "Host directories by path inside.")
    mounts: dict[str, Mount] = field({}, "Provided directories by path inside.")
    file_events: bool = field(False, "Report changes in kernel-backed directories as events.")


class Desktop(Section):
    """A screen, keyboard, mouse and sound of the sandbox's own (docs/desktop.md)."""

    enabled: bool = field(True, "There may be one; it is started on first use.")
    start: bool = field(False, "Start the screen with the sandbox, so that every command has DISPLAY.")
    size: str = field(
        "1280x800", "Width and height of the screen, in pixels.", parse="units.screen_size", example="1920x1080"
    )
    sound: bool = field(True, "Programs inside can play and record sound, which nobody outside hears.")
    display: str = field(
        "sandbox",
        "Whose: the sandbox's own, or this machine's, for which you are asked each time.",
        choices=("sandbox", "host"),
    )


class Browser(Section):
    """A browser inside the walls (docs/desktop.md)."""

    enabled: bool = field(True, "There may be one; it is started on first use.")
    image: str | None = field(
        None,
        "An image that it runs in, in a sandbox of its own beside this one; by default it runs in this sandbox.",
        example="host",
    )
    headless: bool = field(False, "It draws nowhere, instead of on the sandbox's screen.")
    cdp_port: int = field(
        0, "The port of this machine's loopback where it can be driven; 0 is any.", parse="units.port"
    )
    vnc_port: int = field(
        0,
        "The port of this machine's loopback where your VNC viewers find its screen; 0 is none.",
        parse="units.port",
    )
    auto_start: bool = field(False, "Start it with the sandbox.")
    auto_start_timeout: float = field(30.0, "How long its start may take.", parse="units.seconds", example="10s")


class Ui(Section):
    """Messages to the user."""

    language: str | None = field(None, "en, zh-TW or zh-CN; by default from LANG.", choices=("en", "zh-TW", "zh-CN"))


class Config(Section):
    """The configuration of one sandbox."""

    enabled: bool = field(True, "False means mode off. Only the user's own file can set this.")
    mode: str = field(
        "standard",
        "off (on the host, recorded), light (isolated), standard (with limits), max (strictest, nothing is kept).",
        choices=MODES,
    )
    engine: str = field("auto", "What isolates the sandbox.", choices=ENGINES)
    user: str = field(
        "user",
        "The user inside: an ordinary one (uid 1000 if you are root), root as far as the engine allows, or the owner.",
        choices=USERS,
    )
    image: str | None = field(
        None,
        "What is at `/`: host (this machine's own system, the default), minimal, standard, full, a directory, an"
        " imported name, or an OCI reference (docs/images.md).",
        example="minimal",
    )
    image_names: dict[str, str] = field(
        {}, "Names for images, each for one of the above; with `@sha256:…` always the same one."
    )
    image_source: str | None = field(
        None, "Where `sandbox prefetch` gets images: the URL of a manifest.", shown=without_password
    )
    image_keys: list[str] = field([], "Ed25519 public keys (base64), one of which must have signed that manifest.")
    runtime: str | None = field(None, "For container engines: the program that runs containers.", example="runsc")
    container_prefix: str = field(
        "sandbox",
        "For container engines: how containers' names begin, before `-` and the sandbox's id.",
        parse="container_prefix.checked",
    )
    filesystem: Filesystem = field(Filesystem, "Files.")
    state: State = field(State, "What of the home is kept.")
    environment: Environment = field(Environment, "Variables.")
    network: Network = field(Network, "Hosts and secrets.")
    credentials: dict[str, Credential] = field({}, "Credential files and logins by name.")
    limits: Limits = field(Limits, "Resources.")
    caches: list[str] = field(
        caches.TOOLS,
        "Tools whose package cache of yours can be read; what is added is kept apart, for this project.",
        parse="caches.checked",
    )
    tools: Tools = field(Tools, "An agent's tools.")
    agents: Agents = field(Agents, "How to run agents.")
    audit: Audit = field(Audit, "The record.")
    vfs: Vfs = field(Vfs, "Further directories.")
    signing: Signing = field(Signing, "Signatures by a key that stays on the host.")
    browser: Browser = field(Browser, "A browser inside.")
    desktop: Desktop = field(Desktop, "Screen, keyboard, mouse and sound.")
    ui: Ui = field(Ui, "Language.")
    cluster: str | None = field(
        None,
        "A Ray cluster where `sandbox run` runs its commands (docs/cluster.md); SANDBOX_CLUSTER overrides it.",
        example="ray://head:10001",
    )
