# The other scripts in this directory source this file. It changes to the root of the module.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
tools=$root/.tools
export PATH=$tools/bin:$PATH
# The cache of golangci-lint stores paths. If checkouts share a cache, golangci-lint also reports
# findings in the other checkouts, and the exclusions of this checkout do not cover them.
export GOLANGCI_LINT_CACHE=$tools/cache/golangci-lint
mkdir -p "$tools/bin"

# steps is the path of the file with the results of the steps, for the summary. A line is "ok NAME",
# "FAILED NAME" or "SKIPPED NAME: reason". The indented lines below a failure show its output. STEPS
# sets the path. Without STEPS, the scripts do not write the file.
steps=${STEPS:-/dev/null}

say() { printf '%s\n' "$*"; }

ok() { say "ok $1" >>"$steps"; }

failed() {
	say "FAILED $1" >>"$steps"
	say "FAILED $1" >&2
	status=1
}

# skipped NAME REASON: prints the reason immediately, and adds it to the summary.
skipped() {
	say "SKIPPED $1: $2" >>"$steps"
	say "SKIPPED $1: $2" >&2
}

# reasons prints the first ten lines of its input that are not blank, with an indent.
reasons() { grep -v '^[[:space:]]*$' | sed -n '1,10s/^/ /p' || true; }

# step NAME COMMAND...: runs the command, and prints its output only if it fails.
step() {
	local name=$1 output begin=$SECONDS
	shift
	if output=$("$@" 2>&1); then
		say "ok    $name ($((SECONDS - begin)) s)"
		ok "$name"
	else
		say "$output"
		failed "$name"
		reasons <<<"$output" >>"$steps"
	fi
}
