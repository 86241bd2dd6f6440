"""Asks the site's own search for the words that people search for: `make docs`.

It does what Sphinx's searchtools.js does with searchindex.js: stems the words, takes the pages that have all of
them, and orders them by score. A word is answered if the text of its page has it, and the page is among the first
PLACE_MAX. `search-words.toml` has the words and pages.

usage: docs/search.py SITE [QUERY…]   with queries: prints what the search shows for each
"""

import json
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from sphinx.search.en import SearchEnglish

HERE = Path(__file__).parent
PLACE_MAX = 3
# searchtools.js
TITLE, PARTIAL_TITLE, TERM, PARTIAL_TERM, INDEX = 15, 7, 5, 2, 100

ENGLISH = SearchEnglish({})


def rooms():
    """The table of search-scorer.js."""
    table = re.search(r"rooms: \{(.*?)\}", (HERE / "search-scorer.js").read_text(encoding="utf-8"), re.S)[1]
    return {room: int(score) for room, score in re.findall(r'"([^"]*)": (-?\d+)', table)}


def load(site):
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text[len("Search.setIndex(") : -1])


def stems(query):
    words = re.split(r"[^\w]+", query.strip())
    kept = (word for word in words if word and word.lower() not in ENGLISH.stopwords and not word.isdigit())
    return list(dict.fromkeys(ENGLISH.stem(word) for word in kept))


def as_list(pages):
    return pages if isinstance(pages, list) else [pages]


def by_terms(index, query):
    """Pages that have all words, by their number, with their score."""
    words = stems(query)
    scores, found = defaultdict(dict), defaultdict(set)
    for word in words:
        hits = [(index["terms"].get(word), TERM), (index["titleterms"].get(word), TITLE)]
        if len(word) > 2:
            for table, exact, partial in (("terms", TERM, PARTIAL_TERM), ("titleterms", TITLE, PARTIAL_TITLE)):
                if word not in index[table]:
                    hits += [(pages, partial) for term, pages in index[table].items() if word in term]
        for pages, score in hits:
            for page in as_list(pages) if pages is not None else []:
                scores[page][word] = score
                found[page].add(word)
    longer = sum(len(word) > 2 for word in words)
    return {
        page: max(scores[page].values()) for page, has in found.items() if len(has) in (len(words), longer) and has
    }


def search(index, query):
    """Names of pages, the best first, as the page of the search lists them."""
    results = [(page, score, index["titles"][page]) for page, score in by_terms(index, query).items()]
    # Entries that are not the main ones of their word come last.
    others = []
    asked = query.lower().strip()
    for title, places in index["alltitles"].items():
        if asked in title.lower() and len(asked) >= len(title) / 2:
            for page, _ in places:
                boost = index["titles"][page] == title
                shown = title if boost else f"{index['titles'][page]} > {title}"
                results.append((page, round(TITLE * len(asked) / len(title)) + boost, shown))
    for entry, places in index["indexentries"].items():
        if asked in entry and len(asked) >= len(entry) / 2:
            for page, _, is_main in places:
                found = (page, round(INDEX * len(asked) / len(entry)), index["titles"][page])
                (results if is_main else others).append(found)
    table = rooms()

    def order(result):
        page, score, title = result
        name = index["docnames"][page]
        room = max((room for room in table if name.startswith(room)), key=len)
        return -(score + table[room]), title.lower()

    listed = sorted(results, key=order) + sorted(others, key=order)
    return list(dict.fromkeys(index["docnames"][page] for page, _, _ in listed))


def main():
    index = load(Path(sys.argv[1]))
    if sys.argv[2:]:
        for query in sys.argv[2:]:
            print(f"{query}: {', '.join(search(index, query)[:8]) or 'nothing'}")
        return 0
    words = tomllib.loads((HERE / "search-words.toml").read_text(encoding="utf-8"))
    unanswered = []
    for word, target in words.items():
        page = target.partition("#")[0]
        if page not in index["docnames"]:
            unanswered.append(f"{word}: there is no page {page}")
            continue
        if index["docnames"].index(page) not in by_terms(index, word):
            unanswered.append(f"{word}: {page} does not have the word")
        found = search(index, word)
        if page not in found[:PLACE_MAX]:
            unanswered.append(f"{word}: {page} is not among the first: {', '.join(found[:PLACE_MAX])}")
    for line in unanswered:
        print(line)
    print(f"{len(words)} words that people search for, {len(unanswered)} problems")
    return min(len(unanswered), 1)


if __name__ == "__main__":
    sys.exit(main())
