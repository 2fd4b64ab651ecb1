"""Runs inside the sandbox, after fitting.py: a Python that keeps its state and speaks JSON lines. Needs nothing but the standard library.

In: {"code": text, "run": id}. Out, each with that id: {"stream": name, "text": …}, {"data": {media type: …}, "result": true or false},
{"error": {"name", "value", "traceback"}}, and {"done": true} when the code has ended.
"""

import ast
import asyncio
import base64
import builtins
import codecs
import json
import linecache
import os
import select
import signal
import sys
import threading
import traceback

FORMS = {
    "text/html": "_repr_html_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "image/svg+xml": "_repr_svg_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
}


class Session:
    def __init__(self):
        # What the code prints, and what its child processes print, goes into pipes; the host's pipes are ours alone.
        self.answers = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self.lock = threading.Lock()
        self.run_id = None
        self.pipes = {}
        for name, number in (("stdout", 1), ("stderr", 2)):
            read, write = os.pipe()
            os.dup2(write, number)
            os.close(write)
            os.set_blocking(read, False)
            self.pipes[read] = name, codecs.getincrementaldecoder("utf-8")("replace")
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, write_through=False, encoding="utf-8", errors="backslashreplace")
        threading.Thread(target=self.forward, daemon=True).start()
        self.makers = {}  # (module, class) -> a function that gives more forms of such a value

        def display(*values):
            """Shows values in every form that they have."""
            self.display(*values)

        display.makers = self.makers
        self.names = {"__name__": "__main__", "__builtins__": builtins, "display": display}
        sys.modules["__main__"].__dict__.clear()
        sys.modules["__main__"].__dict__.update(self.names)
        self.names = sys.modules["__main__"].__dict__  # pickle, dataclasses and doctest look there
        self.loop = asyncio.new_event_loop()
        self.count = 0
        os.environ.setdefault("MPLBACKEND", "Agg")

    def send(self, **message):
        data = json.dumps(dict(message, run=self.run_id), default=str).encode() + b"\n"
        while data:
            data = data[os.write(self.answers, data) :]

    def forward(self):
        poll = select.poll()
        for read in self.pipes:
            poll.register(read, select.POLLIN)
        while True:
            poll.poll()
            with self.lock:
                self.drain()

    def drain(self, last=False):
        """Sends what is in the pipes. A character may come in two parts, except where the code has ended."""
        for read, (name, decoder) in self.pipes.items():
            while True:
                try:
                    data = os.read(read, 65536)
                except BlockingIOError:
                    break
                if not data:
                    break
                self.send(stream=name, text=decoder.decode(data))
            if last and (rest := decoder.decode(b"", True)):
                self.send(stream=name, text=rest)

    def flush(self, last=False):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        with self.lock:
            self.drain(last)

    def display(self, *values):
        for value in values:
            self.flush()
            self.show(value, False)

    def more(self, value):
        """The forms that a maker gives for values of its class."""
        maker = self.makers.get((type(value).__module__, type(value).__name__))
        return maker(value) if maker is not None else {}

    def show(self, value, result):
        data = {"text/plain": repr(value), **self.more(value)}
        bundle = getattr(value, "_repr_mimebundle_", None)
        try:
            if callable(bundle) and not isinstance(value, type):
                found = bundle()
                data.update(found[0] if isinstance(found, tuple) else found)
        except Exception:
            pass
        for form, method in FORMS.items():
            maker = getattr(value, method, None)
            if form in data or not callable(maker) or isinstance(value, type):
                continue
            try:
                made = maker()
            except Exception:
                continue
            made = made[0] if isinstance(made, tuple) else made
            if made is not None:
                data[form] = base64.b64encode(made).decode() if isinstance(made, bytes) else made
        with self.lock:
            self.send(**fitting(data), result=result)

    def figures(self):
        """Pictures that the code drew with matplotlib and did not show."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        import io

        for number in pyplot.get_fignums():
            figure, file = pyplot.figure(number), io.BytesIO()
            figure.savefig(file, format="png", bbox_inches="tight")
            data = {"text/plain": repr(figure), "image/png": base64.b64encode(file.getvalue()).decode()}
            data.update(self.more(figure))
            with self.lock:
                self.send(**fitting(data), result=False)
        pyplot.close("all")

    def compiled(self, tree, name, mode):
        return compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    def evaluate(self, code):
        """Runs compiled code, in the session's event loop where it awaits something."""
        value = eval(code, self.names)
        return self.loop.run_until_complete(value) if code.co_flags & 0x80 else value

    def run(self, code):
        self.count += 1
        name = "<cell %d>" % self.count
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self.evaluate(self.compiled(tree, name, "exec"))
        if last is None or code.rstrip().endswith(";"):
            if last is not None:
                self.evaluate(self.compiled(ast.Expression(last.value), name, "eval"))
            return
        value = self.evaluate(self.compiled(ast.Expression(last.value), name, "eval"))
        if value is not None:
            self.names["_"] = value
            self.flush()
            self.show(value, True)

    def failed(self, problem):
        trace = problem.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(problem), problem, trace))
        # What the host takes: the value is not to fill the message twice.
        value = cut(str(problem), ERROR_MOST)
        return {"name": type(problem).__name__, "value": value, "traceback": text[:TRACE_MOST]}

    def answer(self, code):
        error = None
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                self.run(code)
                self.figures()
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as problem:
            try:
                error = self.failed(problem)
            except Exception:
                error = {"name": type(problem).__name__, "value": "", "traceback": ""}
        self.flush(last=True)
        with self.lock:
            if error is not None:
                self.send(error=error)
            self.send(done=True)
            self.run_id = None


__file__ = "<session>"
signal.signal(signal.SIGINT, signal.SIG_IGN)
session = Session()
session.send(ready="plain")
for line in requests:  # noqa: F821  (the one who started us has read the first line of it: this file)
    asked = json.loads(line)
    session.run_id = asked["run"]
    session.answer(asked["code"])
