from tests.engines.conformance import Conformance


class TestNoWalls(Conformance):
    engine = "none"
