#!/bin/sh
# Makes the site of docs/ in .harrier/docs, with its search, which needs no network. Warnings are errors: a
# link to a page or a heading that is not there, a page that nothing leads to. Then it looks at
#
# - the spelling of pages, and of comments and messages in sources (codespell; docs/spelling.txt has words
#   that are right here);
# - how pages are written (docs/style.py);
# - whether the site's search finds what people search for (docs/search.py).
#
# usage: scripts/docs.sh
#
# Ends with status 77 where Sphinx cannot be had.
set -eu
checkout=$(cd -- "$(dirname -- "$0")/.." && pwd)
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"

site=$checkout/.harrier/docs
tools=$checkout/.harrier/docs-tools
wanted=$(cksum <"$checkout/docs/requirements.txt")
if [ "$(cat "$tools/requirements.cksum" 2>/dev/null)" != "$wanted" ]; then
    environment "$tools" "sphinx myst_parser furo codespell_lib" --requirement "$checkout/docs/requirements.txt" || {
        echo "docs: Sphinx cannot be had" >&2
        exit 77
    }
    echo "$wanted" >"$tools/requirements.cksum"
fi
# What conf.py reads beside the pages is not among what Sphinx remembers.
rm -rf "$site" "$site.trees"
"$tools/bin/python3" -m sphinx --quiet --fail-on-warning --keep-going --builder html --doctree-dir "$site.trees" \
    "$checkout/docs" "$site"

status=0
(
    cd "$checkout"
    "$tools/bin/python3" -m codespell_lib --ignore-words docs/spelling.txt --skip '*.tsv,*.svg,*.sql,*.out,*.json' \
        ./*.md docs python scripts crates xtask
) || status=1
"$tools/bin/python3" "$checkout/docs/style.py" || status=1
"$tools/bin/python3" "$checkout/docs/search.py" "$site" || status=1
echo "$site/index.html"
exit $status
