# Reads what `cargo build --message-format=json-render-diagnostics` prints, and says on standard error how long it will still take, as soon
# as enough is done to tell: awk -f scripts/progress.awk -v weights=scripts/build-seconds.tsv
#
# The weights are seconds that each crate took once; only their proportions count. What is there already is not counted.

function now(    seconds) {
    "date +%s" | getline seconds
    close("date +%s")
    return seconds
}

BEGIN {
    while ((getline line < weights) > 0) {
        split(line, fields, "\t")
        weight[fields[1]] = fields[2]
        total += fields[2]
    }
    begun = told = now()
}

/"reason":"compiler-artifact"/ {
    if (!match($0, /"target":\{[^}]*"name":"[^"]*"/)) next
    name = substr($0, RSTART, RLENGTH)
    sub(/.*"name":"/, "", name)
    sub(/"$/, "", name)
    if (!(name in weight)) next
    if ($0 ~ /"fresh":true/) {
        total -= weight[name]
    } else {
        done += weight[name]
    }
    delete weight[name]
    at = now()
    # The first crates are small, and many wait for a few large ones at the end.
    if (done >= 0.08 * total && at - begun >= 30 && at - told >= 30) {
        minutes = (at - begun) * (total - done) / done / 60
        if (minutes >= 1) printf "    about %d minutes left\n", minutes + 0.5 > "/dev/stderr"
        told = at
    }
}
