#!/usr/bin/env bash
# Fails if a page links to a file of this repository that does not exist, or to a heading that its page does not have, if a page names a
# package or file in backticks that does not exist (decisions may: their paths are those of their time), or if another file mentions a page
# of docs/ that does not exist. Web addresses are not checked.
set -euo pipefail

failed=0
# shellcheck disable=SC2016 # the backticks are those of Markdown
while IFS=: read -r file line path; do
    path=${path#\`}
    [ -e "${path%\`}" ] || { echo "$file:$line: ${path%\`}: no such file"; failed=1; }
done < <(git grep -noE '`(agent|e2e|hub|installer|packaging|plans|tools|tunnel)/[A-Za-z0-9_/.-]*[A-Za-z0-9]`' \
    -- README.md CONTRIBUTING.md docs ':!docs/adr')
while IFS=: read -r file line page; do
    [ -e "$page" ] || { echo "$file:$line: $page: no such file"; failed=1; }
done < <(git grep -noE 'docs/[A-Za-z0-9/_-]+\.md' -- ':!*.md')

mapfile -t pages < <(git ls-files --cached --others --exclude-standard '*.md')
existing=()
for page in "${pages[@]}"; do
    [ ! -f "$page" ] || existing+=("$page")
done
LC_ALL=C.UTF-8 awk '
    # slug is what GitHub makes of a heading: small letters, no punctuation, hyphens for spaces.
    function slug(text) {
        text = tolower(text)
        gsub(/\]\([^)]*\)/, "", text)
        gsub(/[^a-z0-9 _-]/, "", text)
        gsub(/ /, "-", text)
        return text
    }
    # resolve makes one path of the folder of a page and a relative link.
    function resolve(page, target,    folder, parts, n, i, depth, path) {
        folder = page
        if (!sub(/\/[^\/]*$/, "", folder)) folder = ""
        n = split((folder == "" ? "" : folder "/") target, parts, "/")
        depth = 0
        for (i = 1; i <= n; i++) {
            if (parts[i] == "..") depth--
            else if (parts[i] != "." && parts[i] != "") kept[++depth] = parts[i]
        }
        path = ""
        for (i = 1; i <= depth; i++) path = path (i > 1 ? "/" : "") kept[i]
        return path
    }
    function exists(path) { return system("test -e \"" (path == "" ? "." : path) "\"") == 0 }
    FNR == 1 { code = 0 }
    /^```/ { code = !code; next }
    code { next }
    /^#+ / { heading = $0; sub(/^#+ /, "", heading); headings[FILENAME "#" slug(heading)] = 1 }
    {
        rest = $0
        while (match(rest, /\]\([^) ]+\)/)) {
            target = substr(rest, RSTART + 2, RLENGTH - 3)
            rest = substr(rest, RSTART + RLENGTH)
            if (target !~ /^[a-z]+:/) { links[++count] = target; page[count] = FILENAME; line[count] = FNR }
        }
    }
    END {
        for (i = 1; i <= count; i++) {
            file = anchor = links[i]
            sub(/#.*/, "", file)
            if (!sub(/^[^#]*#/, "", anchor)) anchor = ""
            path = file == "" ? page[i] : resolve(page[i], file)
            if (!(path in seen)) seen[path] = exists(path)
            if (!seen[path]) { printf "%s:%d: %s: no such file\n", page[i], line[i], links[i]; failed = 1 }
            else if (anchor != "" && path ~ /\.md$/ && !((path "#" anchor) in headings)) {
                printf "%s:%d: %s: no such heading\n", page[i], line[i], links[i]; failed = 1
            }
        }
        exit failed
    }' "${existing[@]}" || failed=1
exit "$failed"
