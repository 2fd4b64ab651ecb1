"""The section `signing` of the configuration: what a key that stays on the host may sign (docs/signing.md).

As `model.py`: every field is documented here, and annotations are not postponed.
"""

from sandbox.config.section import Section, field
from sandbox.config.variables import without_password


class SignedArgument(Section):
    """What one argument of a function may be."""

    allowed: list[str] | None = field(None, "Its values, as text. Not given: any.", example=["0x5fbd…"])
    max: int | None = field(None, "The largest number.", parse="units.wei")
    min: int | None = field(
        None, "The smallest number. Not given: any, and 0 where there is a max.", parse="units.whole_wei"
    )


class SignedFunction(Section):
    """A function that may be called."""

    arguments: dict[str, SignedArgument] = field({}, "Rules for its arguments, by name or number (from 0).")


class SigningLimits(Section):
    """Further limits, besides those for everything together."""

    max_value: int | None = field(None, "Most wei that one transaction may send.", parse="units.wei")
    max_per_hour: int | None = field(None, "Most signatures in an hour.", parse="units.count")
    max_per_day: int | None = field(None, "Most signatures in a day.", parse="units.count")
    max_spend_per_day: int | None = field(None, "Most wei in a day, with fees.", parse="units.wei")


class SignedContract(SigningLimits):
    """A destination with rules of its own."""

    abi: str | None = field(None, "A JSON file with its ABI; then `functions` may be written by name.")
    functions: dict[str, SignedFunction] = field(
        {},
        'What may be called: "transfer(address to, uint256 amount)", a name of `abi`, or "*".',
    )


class TypedDomain(Section):
    """EIP-712 messages that may be signed. Their domain must name the contract and one of `chains`."""

    contract: str = field("", "The domain's verifyingContract.")
    name: str | None = field(None, "The domain's name, when it must be this one.")
    types: list[str] = field([], "Primary types that may be signed.", example=["Order"])
    confirm: bool = field(True, "A person must approve each.")


class SignedMessages(Section):
    """Messages that are no transactions."""

    text: str = field(
        "refuse",
        "EIP-191 (personal_sign): refuse, ask a person for each, or allow text. What is no text is asked about.",
        choices=("refuse", "ask", "allow"),
    )
    typed: list[TypedDomain] = field([], "EIP-712 (eth_signTypedData_v4), by domain.")


class Signing(Section):
    """Signatures for Ethereum transactions, by a key that stays on the host (docs/signing.md)."""

    enabled: bool = field(False, "Programs inside can ask for signatures at http://signer.sandbox.internal.")
    backend: str = field("keystore", "What signs.", choices=("keystore", "command", "web3signer"))
    keystore: str | None = field(None, "For keystore: the encrypted key, a file as geth and eth-account write it.")
    command: list[str] = field([], "For command: a program of the host that signs.")
    url: str | None = field(None, "For web3signer: where it listens.", shown=without_password)
    address: str | None = field(None, "The account. With a keystore it is known.")
    chains: list[int] = field([], "Chain ids that may be signed for; the first is the provider's.", example=[1])
    rpc: dict[str, str] = field(
        {},
        "By chain id: a JSON-RPC node that reads and transactions go to. Its host must be allowed for the sandbox.",
        example={"1": "https://rpc.example.com"},
    )
    broadcast: bool = field(True, "eth_sendTransaction sends what was signed; otherwise it is handed back.")
    allowed_addresses: list[str] = field([], 'Addresses that ether may be sent to; "*" is any.')
    denied_addresses: list[str] = field([], "Addresses that nothing may go to. Overrides the others.")
    contracts: dict[str, SignedContract] = field({}, "Destinations with rules of their own, by address.")
    max_value: int = field(10**17, "Most wei that one transaction may send.", parse="units.wei", example="0.1 ether")
    max_gas: int = field(1_000_000, "Most gas of one transaction.", parse="units.count")
    max_fee_per_gas: int = field(500 * 10**9, "Most wei for a unit of gas.", parse="units.wei", example="500 gwei")
    max_per_hour: int = field(10, "Most signatures in an hour.", parse="units.count")
    max_per_day: int = field(50, "Most signatures in a day.", parse="units.count")
    max_spend_per_day: int = field(10**18, "Most wei in a day, with fees.", parse="units.wei", example="1 ether")
    per_sandbox: SigningLimits = field(SigningLimits, "The same for each sandbox.")
    confirm_above: int = field(
        10**16, "A person must approve what costs more wei than this, with fees.", parse="units.wei"
    )
    approval_lifetime: float = field(
        300.0, "How long a request waits for a person.", parse="units.seconds", example="5m"
    )
    messages: SignedMessages = field(SignedMessages, "Messages that may be signed.")
