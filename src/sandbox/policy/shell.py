"""Which commands a line of shell would run: enough of the grammar to check it, and no more.

Everything that could run something unseen — a function, an alias, a command name that is not literal, an unknown
construct — raises `Unclear`, and the guard then refuses. This checks what an agent *asks* for. The isolation, not this
file, keeps it from doing more.
"""

from __future__ import annotations

from sandbox.errors import Message

# Words that begin or join compound commands; what follows them is a command again.
_JOINING = frozenset(("if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "{", "}"))
_UNSUPPORTED = frozenset(("case", "esac", "function", "select", "coproc", "[["))
_DEEPEST = 20
_OPERATORS = str.maketrans(":-=+?#%/", "        ")  # between a name and its own text: `${x:-default}`, `${x/a/b}`
_MARK = "\0"  # around the own text of each expansion in a word; no line has it


class Unclear(Exception):
    """The text of the line does not show what it would run."""


class SimpleCommand:
    """One simple command: its `words` (None for a word that is not literal), the words as written (`raw`) and their
    literal parts without the quotes (`spelled`), the files that it reads and writes by redirection, the literal parts
    of the values of variables that it sets (`values`), and its input where the line contains it (`fed`; whether all of
    it: `feeds_literally`).
    """

    __slots__ = ("words", "raw", "spelled", "reads", "writes", "values", "fed", "feeds_literally")

    def __init__(self) -> None:
        self.words: list[str | None] = []
        self.raw: list[str] = []
        self.spelled: list[str] = []
        self.reads: list[str | None] = []
        self.writes: list[str | None] = []
        self.values: list[str] = []
        self.fed: list[str] = []
        self.feeds_literally = True

    def __repr__(self) -> str:
        return f"Command({self.words}, writes={self.writes}, values={self.values})"


def commands(text: str) -> list[SimpleCommand]:
    """Every simple command in `text`, those in substitutions too. Raises Unclear."""
    if "\0" in text:
        raise Unclear("a NUL character")
    parser = _Parser(text)
    parser.run("")
    found = parser.found
    return [one for one in found if one.words or one.reads or one.writes or one.values]


class _Parser:
    def __init__(self, text: str, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise Unclear("nested too deeply")
        self.text = text
        self.at = 0
        self.depth = depth
        self.found: list[SimpleCommand] = []
        self.heredocs: list[tuple[str, bool, bool, SimpleCommand]] = []
        self.spelled = ""  # the literal parts of the last word
        self.in_for = False
        self.for_words: list[str] = []

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def run(self, closing: str) -> None:
        """Reads commands up to `closing` (")" of a substitution or subshell; "" for the end of the text)."""
        command = self.fresh()
        while self.at < len(self.text):
            sign = self.peek()
            if sign == closing:
                self.at += 1
                return
            if sign in " \t":
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif sign == "#":
                self.at = _line_end(self.text, self.at)
            elif sign in ";\n&|":
                command = self.separator(command)
            elif sign == "(":
                if command.words or command.values:
                    raise Unclear("a function or an array")
                if self.peek(2) == "((":
                    raise Unclear(Message("arithmetic"))
                self.at += 1
                self.subshell()
                command = self.fresh()
            elif sign == ")":
                raise Unclear("an unexpected ')'")
            elif sign in "<>" or _numbered_redirection(self.text, self.at):
                self.redirection(command)
            else:
                command = self.take_word(command)
        if closing or self.heredocs:
            raise Unclear("it ends unexpectedly")

    def subshell(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unclear("nested too deeply")
        self.run(")")
        self.depth -= 1

    def fresh(self) -> SimpleCommand:
        self.found.append(SimpleCommand())
        return self.found[-1]

    def separator(self, command: SimpleCommand) -> SimpleCommand:
        if self.peek() == "\n":
            self.at += 1
            self.read_heredocs()
        elif self.peek(2) in ("&>",):
            self.at += 1
            self.redirection(command)
            return command
        else:
            self.at += 2 if self.peek(2) in ("&&", "||", "|&") else 1
        self.in_for = False
        return self.fresh()

    def take_word(self, command: SimpleCommand) -> SimpleCommand:
        start = self.at
        word = self.word()
        raw = self.text[start : self.at]
        if not command.words and word == raw:  # reserved words count only unquoted and at the beginning of a command
            if word in _UNSUPPORTED:
                raise Unclear(Message("{word!r}", word=word))
            if word == "for":
                self.in_for = True  # names and values up to the separator run nothing
                self.for_words = []
                return command
            if word in _JOINING and not self.in_for:
                return self.fresh()
        if self.in_for:
            if len(self.for_words) == 1 and raw == "do":  # `for x do`: without `in`, no separator is needed
                self.in_for = False
                return self.fresh()
            if evaluates(self.spelled):
                raise Unclear("a complicated expansion")
            self.for_words.append(raw)
            return command
        if not command.words and _assigns(raw):
            command.values.append(self.spelled)
            return command
        command.words.append(word)
        command.raw.append(raw)
        command.spelled.append(self.spelled)
        return command

    def word(self) -> str | None:
        """The next word as the shell would pass it; None if part of it is not literal."""
        out, computed = "", False
        while self.at < len(self.text):
            sign = self.peek()
            if sign in " \t\n;&|<>()":
                if sign == "(" and out and out[-1] in "?*+@!":
                    raise Unclear("an extended pattern")
                break
            if sign == "\\":
                if self.peek(2) == "\\\n":  # the shell joins the lines first: an operator may be split, too
                    raise Unclear("a word on two lines")
                out += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif sign == "'":
                out += self.quoted_until("'")
            elif sign == '"':
                inner, dynamic = self.double_quoted()
                out, computed = out + inner, computed or dynamic
            elif sign == "$" or sign == "`":
                out, computed = self.dollar(out, computed)
            else:
                # A glob or brace expands to names that the text does not show; an argument may do that.
                computed = computed or sign in "*?[{"
                out += sign
                self.at += 1
        self.spelled = _spellings(out)
        return None if computed else out

    def quoted_until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end == -1:
            raise Unclear("an unclosed quote")
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return inner

    def double_quoted(self) -> tuple[str, bool]:
        self.at += 1
        out, computed = "", False
        while (sign := self.peek()) != '"':
            if not sign:
                raise Unclear("an unclosed quote")
            if sign == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                out += following if following in '$`"\\' else "" if following == "\n" else f"\\{following}"
                self.at += 2
            elif sign in "$`":
                out, computed = self.dollar(out, computed)
            else:
                out += sign
                self.at += 1
        self.at += 1
        return out, computed

    def dollar(self, out: str, computed: bool) -> tuple[str, bool]:
        """An expansion. Commands in it are read as commands."""
        if self.peek() == "`":
            inner = self.quoted_until("`")
            if "\\" in inner:
                raise Unclear("a complicated expansion")
            self.nested(inner)
            return out + _MARK * 2, True
        following = self.text[self.at + 1 : self.at + 2]
        if self.peek(3) == "$((" or following == "[":
            raise Unclear(Message("arithmetic"))
        if following == "(":
            parser = _Parser(self.text, self.depth + 1)
            parser.at = self.at + 2
            parser.run(")")
            self.at = parser.at
            self.found.extend(parser.found)
            return out + _MARK * 2, True
        if following == "{":
            end = self.text.find("}", self.at)
            inside = self.text[self.at + 2 : end]
            # `${x@P}` and `${x:=$(…)}` run commands, and so may arithmetic (`${x[y]}`, `${x:y}`) and a name from a
            # variable (`${!x}`); plain names and defaults do not. `${x,,}` spells a name in other letters.
            if end == -1 or any(sign in inside for sign in "`(@'\"\\$[!^,") or _slices(inside):
                raise Unclear("a complicated expansion")
            self.at = end + 1
            own_text = inside[_name_end(inside, 0) :].translate(_OPERATORS).strip()
            return f"{out}{_MARK}{own_text}{_MARK}", True
        if following in ("'", '"'):
            raise Unclear("a $'…' string")
        if self.text.startswith("\\\n", self.at + 1):
            raise Unclear("a word on two lines")
        self.at += 1
        if following.isalnum() or following in ("_", "*", "@", "#", "?", "-", "$", "!"):
            self.at = max(_name_end(self.text, self.at), self.at + following.isascii())
            return out + _MARK * 2, True
        return f"{out}$", computed

    def nested(self, text: str) -> None:
        inner = _Parser(text, self.depth + 1)
        inner.run("")
        self.found.extend(inner.found)

    def redirection(self, command: SimpleCommand) -> None:
        while self.peek().isdigit():
            self.at += 1
        operator = next(one for one in ("<<<", "<<-", "<<", "<>", "<&", "<(", "<", ">>", ">|", ">&", ">(", ">")
                        if self.text.startswith(one, self.at))  # fmt: skip
        if operator in ("<(", ">("):
            raise Unclear("a process substitution")
        self.at += len(operator)
        while self.peek() in (" ", "\t"):
            self.at += 1
        start = self.at
        word = self.word()
        raw = self.text[start : self.at]
        if not raw:
            raise Unclear("a redirection without a target")
        if operator in ("<<", "<<-"):
            self.heredocs.append((*_delimiter(raw), operator == "<<-", command))
        elif operator == "<<<":
            command.fed.append(self.spelled)
            command.feeds_literally = command.feeds_literally and word is not None
        elif operator.endswith("&") and evaluates(self.spelled):  # bash expands this name twice
            raise Unclear("a complicated expansion")
        elif operator.endswith("&") and raw.rstrip("-").isdigit():
            pass  # another descriptor
        elif word != "/dev/null":
            if ">" in operator:
                command.writes.append(word)
            if "<" in operator:
                command.reads.append(word)

    def read_heredocs(self) -> None:
        for end, quoted, tabs, command in self.heredocs:
            start = self.at
            while True:
                if self.at >= len(self.text):
                    raise Unclear("an unclosed here-document")
                stop = _line_end(self.text, self.at)
                line = self.text[self.at : stop]
                self.at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    command.fed.append(self.text[start : self.at])
                    break
                if line.lstrip("\t").startswith(f"{end})"):
                    raise Unclear("an unclosed here-document")
                if not quoted and (line.endswith("\\") or any(sign in line for sign in ("$(", "`", "${", "$["))):
                    raise Unclear("a here-document with expansions")
        self.heredocs = []


def _numbered_redirection(text: str, start: int) -> bool:
    end = start
    while "0" <= text[end : end + 1] <= "9":
        end += 1
    return end > start and text[end : end + 1] in ("<", ">")


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end == -1 else end


def evaluates(text: str) -> bool:
    """Whether text that a shell evaluates once more (`PS4`, `trap`, a subscript) may run a command."""
    return "$" in text or "`" in text


def _name_end(text: str, start: int) -> int:
    """Where the variable's name that begins at `start` ends."""
    end = start
    while text[end : end + 1].isascii() and (text[end : end + 1].isalnum() or text[end : end + 1] == "_"):
        if end == start and text[end].isdigit():
            break
        end += 1
    return end


def _spellings(marked: str) -> str:
    """The literal parts of a word, a line for each way in which they may stand beside each other: with nothing for each
    expansion, with the expansion's own text (a default), and apart. Raises Unclear where there are more ways."""
    parts = marked.split(_MARK)
    if len(parts) == 1:
        return marked
    if sum(map(bool, parts[1::2])) > 1:
        raise Unclear("a complicated expansion")
    return "\n".join(dict.fromkeys(("".join(parts[::2]), "".join(parts), " ".join(parts))))


def _slices(inside: str) -> bool:
    """Whether `${…}` has an offset (`x:1`), which is arithmetic, not a default (`x:-1`)."""
    _, colon, rest = inside.partition(":")
    return bool(colon) and rest[:1] not in ("-", "=", "+", "?")


def _delimiter(raw: str) -> tuple[str, bool]:
    """The line that ends a here-document, and whether it was quoted. Raises Unclear unless all or nothing is quoted."""
    quoted = len(raw) > 2 and raw[0] in "'\"" and raw[0] == raw[-1]
    plain = raw[1:-1] if quoted else raw.removeprefix("\\")
    if not plain or not all(sign.isalnum() or sign in "_-." for sign in plain):
        raise Unclear("a here-document whose end is not literal")
    return plain, plain != raw


def _assigns(raw: str) -> bool:
    name = raw.split("=", 1)[0].removesuffix("+").split("[")[0]
    return "=" in raw and name.isidentifier()
