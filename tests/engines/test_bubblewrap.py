from tests.engines.conformance import Conformance


class TestBubblewrap(Conformance):
    engine = "bubblewrap"
