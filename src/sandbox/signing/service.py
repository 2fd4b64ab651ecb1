"""The deciding part: every request for a signature comes here, whoever asks.

What is judged is what is signed: a request is read once, strictly, and from then on only its one plain spelling and the
hash of that are used. A claim is in the ledger before the backend is asked. An approval is for a hash, is judged again
with the history at that time, and must come from somebody other than the asker.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Condition
from typing import Any

from sandbox.audit.record import Record
from sandbox.errors import Denied, NotFound
from sandbox.policy.decision import Decision
from sandbox.policy.signing.checks import PERSON, Asked, SigningDecision, judge
from sandbox.policy.signing.fields import MalformedField
from sandbox.policy.signing.requests import Request, TextMessage, UnsignedTransaction, read_request, request_id
from sandbox.policy.signing.rules import Rules
from sandbox.signing.backends.base import Order, SignerBackend, SigningFailed
from sandbox.signing.backends.capability import hash_of
from sandbox.signing.calls import arguments, described, keccak
from sandbox.signing.ledger import CLAIMED, EXPIRED, FAILED, PENDING, REJECTED, SIGNED, Ledger, Row, Transaction
from sandbox.signing.results import SigningResult, pending_approval

MOST_PENDING, MOST_PENDING_EACH = 64, 16
LATE = Decision(False, "person", "nobody approved it in time")


class SigningService:
    """One account's signatures. Safe to use from many threads; others, in other processes, may share its ledger.

    `stopped` says why nothing is signed at all for now (the kill switch), or None.
    """

    def __init__(
        self,
        rules: Rules,
        ledger: Ledger,
        backend: SignerBackend,
        record: Record,
        stopped: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.rules = rules
        self._ledger = ledger
        self._backend = backend
        self._record = record
        self._stopped = stopped
        self._changed = Condition()

    @property
    def address(self) -> str:
        return self._backend.get_address()

    # -- asking

    def submit(
        self, id: object, kind: object, given: object, *, asker: str, sandbox: str, family: str | None = None
    ) -> SigningResult:
        """Signs a request, queues it for a person, or refuses it. The same id and content again ask for its status.

        `family`: what the sandbox's limits are counted for, where that is not the sandbox itself.
        """
        who = {"asker": asker, "sandbox": sandbox, "family": family or sandbox}
        try:
            named, request = request_id(id), read_request(kind, given, keccak)
        except MalformedField as problem:
            decision = Decision(False, "form", str(problem))
            self._tell("rejected", "", "", sandbox, None, decision)
            return SigningResult("", "", decision, error=str(problem))
        hash = hash_of(request.kind, request.plain())
        asked = Asked(request, arguments(request, self.rules))
        with self._ledger.transaction() as ledger:
            self._expire(ledger)
            row = ledger.find(named)
            known = self._known(row, asker, hash) if row is not None else None
            verdict = None if known else self._claimed(ledger, named, asked, hash, who, used=row is not None)
        if known is not None:
            return known
        assert verdict is not None
        self._tell("submitted", named, hash, sandbox, request, verdict.decision)
        if not verdict.decision:
            self._tell("rejected", named, hash, sandbox, request, verdict.decision)
            return SigningResult(named, hash, verdict.decision, error=str(verdict.decision.reason))
        if verdict.confirm:
            self._notify()
            return SigningResult(named, hash, verdict.decision, True, True, error=str(PERSON.reason))
        return self._sign(named, request, hash, sandbox, verdict, by="policy")

    def _claimed(
        self, ledger: Transaction, id: str, asked: Asked, hash: str, who: dict[str, str], *, used: bool
    ) -> SigningDecision:
        """Returns the verdict, and writes the claim or the pending request to the ledger."""
        request = asked.request
        why = self._stopped()
        if why is not None:
            return SigningDecision(Decision(False, "kill-switch", why))
        verdict = judge(asked, self.rules, ledger.history(who["family"], request.destination, used=used))
        if not verdict.decision:
            return verdict
        row: dict[str, Any] = {
            "id": id,
            **who,
            "kind": request.kind,
            "hash": hash,
            "destination": request.destination,
            "cost": str(request.cost),
            "asked_at": ledger.now,
        }
        if not verdict.confirm:
            ledger.add(**row, state=CLAIMED, claimed_at=ledger.now)
            return verdict
        waiting = ledger.pending()
        if len(waiting) >= MOST_PENDING or sum(one.asker == who["asker"] for one in waiting) >= MOST_PENDING_EACH:
            return SigningDecision(Decision(False, "person", "too many requests wait for a person"))
        shown = json.dumps(described(request, self.rules))
        ends = ledger.now + self.rules.signing.approval_lifetime
        ledger.add(**row, state=PENDING, payload=json.dumps(request.plain()), shown=shown, expires_at=ends)
        return verdict

    def _known(self, row: Row, asker: str, hash: str) -> SigningResult | None:
        """The status of a request that this asker made before, with the same content. None: it is a replay."""
        if row.asker != asker or row.hash != hash:
            return None
        if row.state == PENDING:
            return SigningResult(row.id, hash, PERSON, True, True, error="it needs a person's approval")
        if row.decided_by is None and row.state != EXPIRED:
            return None  # signed at once: its answer was given then
        return _decided(row)

    def wait(self, id: str, *, asker: str, seconds: float) -> SigningResult | None:
        """How a request of this asker was decided; None when it is still pending after `seconds`. Raises NotFound."""
        import time

        ends = time.monotonic() + seconds
        while True:
            with self._changed:
                with self._ledger.transaction(durable=False) as ledger:
                    self._expire(ledger)
                    row = ledger.find(id)
                if row is None or row.asker != asker or (row.decided_by is None and row.expires_at is None):
                    raise NotFound("no request {id!r} is waiting", id=id)
                if row.state not in (PENDING, CLAIMED):
                    return _decided(row)
                left = ends - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 1.0))  # another process may decide, too

    # -- a person

    def pending(self) -> list[dict[str, Any]]:
        """The pending requests, the oldest first, each as a PendingApproval."""
        with self._ledger.transaction() as ledger:
            self._expire(ledger)
            rows = ledger.pending()
        return [pending_approval(row, json.loads(row.payload or "{}"), json.loads(row.shown or "{}")) for row in rows]

    def approve(self, id: object, *, approver: str, hash: str | None = None) -> SigningResult:
        """Signs a pending request, if the policy still allows it. Raises NotFound, Denied."""
        self._expire_for_good()
        with self._ledger.transaction() as ledger:
            row = self._waiting(ledger, id, approver, hash)
            request = read_request(row.kind, json.loads(row.payload or "null"), keccak)
            if hash_of(request.kind, request.plain()) != row.hash:
                raise Denied("person", "the request is not what was asked for")
            why = self._stopped()
            history = ledger.history(row.family, row.destination, used=False)
            verdict = judge(Asked(request, arguments(request, self.rules)), self.rules, history)
            if why is not None:
                verdict = SigningDecision(Decision(False, "kill-switch", why))
            if verdict.decision:
                decided: dict[str, Any] = {"state": CLAIMED, "claimed_at": ledger.now}
            else:
                decided = {"state": REJECTED, "reason": str(verdict.decision.reason)}
            ledger.change(row.id, PENDING, decided_by=approver, payload=None, **decided)
        if not verdict.decision:
            self._notify()
            self._tell("rejected", row.id, row.hash, row.sandbox, request, verdict.decision, by=approver)
            return SigningResult(row.id, row.hash, verdict.decision, error=str(verdict.decision.reason))
        return self._sign(row.id, request, row.hash, row.sandbox, SigningDecision(PERSON, True), by=approver)

    def reject(self, id: object, *, approver: str, hash: str | None = None) -> SigningResult:
        """Refuses a pending request. Raises NotFound, Denied."""
        self._expire_for_good()
        with self._ledger.transaction() as ledger:
            row = self._waiting(ledger, id, approver, hash)
            ledger.change(row.id, PENDING, state=REJECTED, decided_by=approver, payload=None)
        self._notify()
        decision = Decision(False, "person", "rejected by a person")
        self._tell("rejected", row.id, row.hash, row.sandbox, None, decision, by=approver)
        return SigningResult(row.id, row.hash, decision, error=str(decision.reason))

    def _waiting(self, ledger: Transaction, id: object, approver: str, hash: str | None) -> Row:
        self._expire(ledger)
        row = ledger.find(id) if isinstance(id, str) else None
        if row is None or row.state != PENDING:
            raise NotFound("no request {id!r} is waiting: it was decided, or it timed out", id=str(id)[:128])
        if row.asker == approver:
            raise Denied("person", "the requester of a signature cannot approve it")
        if hash is not None and hash != row.hash:
            raise Denied("person", "the hash is not that of the request")
        return row

    def _expire_for_good(self) -> None:  # a decision that is refused undoes all of its own transaction
        with self._ledger.transaction() as ledger:
            self._expire(ledger)

    def _expire(self, ledger: Transaction) -> None:
        for row in ledger.expire():
            self._tell("rejected", row.id, row.hash, row.sandbox, None, LATE)

    # -- signing

    def _sign(
        self, id: str, request: Request, hash: str, sandbox: str, verdict: SigningDecision, *, by: str
    ) -> SigningResult:
        """Signs what was claimed. The outcome is in the ledger before anybody gets an answer."""
        order = Order(id, request, hash, verdict.confirm)
        failed = signature = None
        try:
            sign = self._backend.sign_transaction if request.kind == "transaction" else self._backend.sign_message
            signature = sign(order)
        except SigningFailed as problem:
            failed = str(problem)
        finally:
            kept = signature if verdict.confirm else None  # the asker of a pending request fetches it later
            with self._ledger.transaction(durable=verdict.confirm) as ledger:
                ledger.change(id, CLAIMED, state=SIGNED if signature else FAILED, signature=kept)
            self._notify()
        if signature is None:
            decision = Decision(False, "backend", failed or "it was not signed")
            self._tell("rejected", id, hash, sandbox, request, decision, by=by)
            return SigningResult(id, hash, decision, verdict.confirm, confirmed=verdict.confirm, error=failed)
        self._tell("approved", id, hash, sandbox, request, verdict.decision, by=by)
        return SigningResult(
            id, hash, verdict.decision, verdict.confirm, signature=signature, confirmed=verdict.confirm
        )

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _tell(
        self, what: str, id: str, hash: str, sandbox: str, request: Request | None, decision: Decision, by: str = ""
    ) -> None:
        """One entry of the record. It has hashes and reasons, never a signature."""
        about: dict[str, str | int] = {"requestId": id, "hash": hash, "sandbox": sandbox}
        if request is not None:
            about["kind"] = request.kind
            if not isinstance(request, TextMessage):
                about.update(chainId=request.chain, to=request.destination)
            if isinstance(request, UnsignedTransaction):
                about.update(value=str(request.value), cost=str(request.cost))
        if by:
            about["by"] = by
        refused = what == "rejected"
        self._record.write(
            f"signing_request_{what}",
            f"signing request {what}: {decision.reason}" if refused else f"signing request {what}",
            severity="warn" if refused else "info",
            metadata=about,
            operation="sign",
            target=request.destination if request is not None else None,
            result=None if what == "submitted" else "blocked" if refused else "allowed",
            policy=decision.rule,
            reason=str(decision.reason),
            sync=what != "submitted",
        )


def _decided(row: Row) -> SigningResult:
    if row.state == SIGNED and row.signature is not None:
        return SigningResult(row.id, row.hash, PERSON, True, signature=row.signature, confirmed=True)
    if row.state == EXPIRED:
        refused = LATE
    elif row.state == REJECTED:
        refused = Decision(False, "person", row.reason or "rejected by a person")
    else:
        refused = Decision(False, "backend", "it was approved, but not signed")
    return SigningResult(row.id, row.hash, refused, error=str(refused.reason))
