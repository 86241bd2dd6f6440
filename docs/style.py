"""Looks at how the pages are written: `make docs`.

Rules, each with its reason:

- No sentence has more than WORDS_MAX words where a page begins: from its title to the end of its first
  section, and in all of the README. Who has just come reads on, or leaves, there.
- One name for one thing: WORDS has spellings and names that readers would look for in vain, with what stands
  in their place. Pages that translate from another program have its words.
- No filler: words that say that something is easy help nobody for whom it is not.

Code, tables and targets of links are left out. Vale does the same in 0.1 s, but it needs Go, 84 s of both cores
to be built and 54 MB: too much for two rules. Spelling is codespell's (`scripts/docs.sh`).

usage: docs/style.py [PAGE…]
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ["tutorials", "how-to", "explanation"]
WORDS_MAX = 30

# A pattern of words, and what to write instead.
WORDS = {
    r"Postgres": "PostgreSQL",
    r"SLURM": "Slurm",
    r"Open-?MPI|OpenMpi": "Open MPI",
    r"Intel-?MPI": "Intel MPI",
    r"numpy|Numpy": "NumPy",
    r"duckdb|Duckdb": "DuckDB",
    r"Ducklake": "DuckLake",
    r"parquet": "Parquet",
    r"file ?name ?space|filesystems?": "file system",
    r"hostnames?": "host name",
    r"command-line|commandline": "command line",
    r"data ?base ware ?house|data warehouses?": "warehouse",
    r"metadata store|meta ?store of Harrier": "catalog",
    r"worker processes|workers?": "rank",
    r"master": "coordinator",
    r"executors?": "rank",
    r"segments?": "rank",
    r"shuffles?|shuffled|shuffling": "motion, redistribute",
    r"exchange operators?": "motion",
    r"stages?": "slice",
    r"mappers?": "O task",
    r"reducers?": "A task",
    r"director(?:y|ies)": "folder",
    r"simply|just|easily|easy|obviously|of course|please": "",
    r"utili[sz]e[sd]?": "use",
    r"in order to": "to",
    r"e\.g\.|i\.e\.|etc\.": "for example, that is, and so on",
    r"via": "by, over",
    r"and/or": "and, or",
    r"tells? of|told of": "report, show",
}
# Pages that translate from other programs, whose names they use.
OTHERS = re.compile(r"from-.*|hive\.md")
NAMES = {"coordinator", "rank", "motion", "motion, redistribute", "slice", "O task", "A task"}
# Where a word of the list is meant as it stands.
MEANT = [
    r"current director(?:y|ies)",
    r"(?:LDAP|of a|a|the) director(?:y|ies) (?:knows|that knows|is asked)",
    r"LDAP director(?:y|ies)|director(?:y|ies) of LDAP|asks the directory|Certificates of directories"
    r"|certificate or a directory|a directory that locks",
    r"\*A tasks\* \(reducers\)|\*O tasks\* \(mappers\)",
    r"MapReduce",
]


def pages():
    yield ROOT / "README.md"
    for folder in FOLDERS:
        yield from sorted((ROOT / "docs" / folder).glob("*.md"))


def blocks(text):
    """Paragraphs, items of lists and headings as (line, text), without code and tables."""
    found, is_code, is_comment, is_open = [], False, False, False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if is_comment or not is_code and bare.startswith("<!--"):
            is_comment, is_open = "-->" not in bare, False
        elif bare.startswith(("```", "~~~")):
            is_code, is_open = not is_code, False
        elif is_code or bare.startswith(("|", "![")) or not bare:
            is_open = False
        elif bare.startswith("#"):
            found.append((number, bare))
            is_open = False
        else:
            item = re.match(r"(?:[-*+]|\d+\.)\s+", bare)
            if item or not is_open:
                found.append((number, bare[item.end() :] if item else bare))
            else:
                found[-1] = (found[-1][0], found[-1][1] + " " + bare)
            is_open = True
    return found


def prose(text):
    """Without code and the targets of links. Code is one word."""
    text = re.sub(r"``.+?``|`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text


def sentences(text):
    return [part for part in re.split(r"(?<=[.!?])[)*\"]*\s+(?=[A-Z\"*(\d])", text) if part]


def beginning(found, is_whole):
    """What stands before the second section."""
    sections = 0
    for number, text in found:
        sections += text.startswith("## ")
        if sections > 1 and not is_whole:
            return
        if not text.startswith("#"):
            yield number, text


def problems(page, text):
    found = blocks(text)
    for number, block in beginning(found, page.name == "README.md"):
        for sentence in sentences(prose(block)):
            words = len(sentence.split())
            if words > WORDS_MAX:
                yield number, f"a sentence of {words} words, more than {WORDS_MAX}: {sentence[:60]}…"
    for number, block in found:
        plain = prose(block)
        for meant in MEANT:
            plain = re.sub(meant, "MEANT", plain)
        for pattern, instead in WORDS.items():
            if OTHERS.match(page.name) and instead in NAMES:
                continue
            for word in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", plain):
                yield number, f'"{word[0]}": {instead and "write " + instead or "leave it out"}'


def main():
    listed = [Path(name).resolve() for name in sys.argv[1:]] or list(pages())
    wrong = 0
    for page in listed:
        for number, problem in problems(page, page.read_text(encoding="utf-8")):
            print(f"{page.relative_to(ROOT)}:{number}: {problem}")
            wrong += 1
    print(f"{len(listed)} pages, {wrong} problems of style")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
