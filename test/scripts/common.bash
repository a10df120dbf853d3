# Sourced by the other scripts of this folder. They run from the root of the module.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
tools=$root/.tools
export PATH=$tools/bin:$PATH
# golangci-lint's cache remembers paths: a cache that checkouts share reports findings
# of the other checkouts, which the exclusions of this one do not cover.
export GOLANGCI_LINT_CACHE=$tools/cache/golangci-lint
mkdir -p "$tools/bin"

# The results of the steps, for the summary. A line is "ok NAME", "FAILED NAME" or
# "SKIPPED NAME: reason"; the indented lines below a failure give its reasons. A
# caller that wants this file sets STEPS.
steps=${STEPS:-/dev/null}

say() { printf '%s\n' "$*"; }

ok() { say "ok $1" >>"$steps"; }

failed() {
	say "FAILED $1" >>"$steps"
	say "FAILED $1" >&2
	status=1
}

# skipped NAME REASON: printed at once, and again in the summary.
skipped() {
	say "SKIPPED $1: $2" >>"$steps"
	say "SKIPPED $1: $2" >&2
}

# reasons indents the first lines of the output of a failed step.
reasons() { grep -v '^[[:space:]]*$' | sed -n '1,10s/^/ /p' || true; }

# step NAME COMMAND...: runs the command; its output is shown only if it fails.
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
