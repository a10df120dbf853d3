package protocol

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/errors.md")

const errorsDoc = "../../docs/errors.md"

// TestErrorsDocIsTheTable keeps docs/errors.md in step with the Reason table.
func TestErrorsDocIsTheTable(t *testing.T) {
	want := appendErrorsDoc(nil)
	if *update {
		if err := os.WriteFile(errorsDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(errorsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/errors.md differs from the table; write it with: go test ./pkg/protocol -run ErrorsDoc -update\n- table + file:\n%s", diff)
	}
}

func TestEveryReasonIsWholeAndUnique(t *testing.T) {
	names, texts := map[string]Reason{}, map[string]Reason{}
	for r := range Reasons() {
		row := r.Traits()
		if row.Name == "" || row.Flag == "" || row.Text == "" || row.Hint == "" {
			t.Errorf("reason %d %q: empty name, flag, text or hint", r, row.Name)
		}
		if row.HTTP < 400 || row.HTTP > 599 {
			t.Errorf("%v: HTTP status %d is no error", r, row.HTTP)
		}
		if row.GRPC < 1 || row.GRPC > 16 {
			t.Errorf("%v: gRPC status %d is no error", r, row.GRPC)
		}
		if row.Dubbo == 0 || row.Dubbo == 20 || row.Bolt == 0 {
			t.Errorf("%v: Dubbo %d, Bolt %d: one is no error", r, row.Dubbo, row.Bolt)
		}
		if other, taken := names[row.Name]; taken {
			t.Errorf("name %q is of %d and %d", row.Name, other, r)
		}
		if other, taken := texts[row.Text]; taken {
			t.Errorf("text %q is of %d and %d", row.Text, other, r)
		}
		names[row.Name], texts[row.Text] = r, r
	}
}

func appendErrorsDoc(dst []byte) []byte {
	b := bytes.NewBuffer(dst)
	b.WriteString(`# When Weft answers by itself

<!-- Written by go test ./pkg/protocol -run ErrorsDoc -update from the table in pkg/protocol/reason.go. Change it there. -->

Weft answers a request itself, or ends it, for one of the reasons below. The
reason decides the answer in the caller's own protocol; the flag is what the
access log shows as ` + "`%response_flag%`" + `, the name is the ` + "`reason`" + ` label of the
metrics. A flag "-" means that Envoy has none for the reason. Flags that add to it:
` + "`DI`" + `, the fault filter delayed the request; ` + "`URX`" + `, the last try failed and the retry
policy allows no more; ` + "`UAEX`" + `, the service that ext_authz asks refused the request or
failed. They are joined by commas: ` + "`URX,UF`" + `. What exactly happened is in the log only (` + "`%response_detail%`" + `).

**HTTP** callers get the text of the reason as the body: nothing of the request, no
name of a listener or a cluster, and no address.

**RPC** callers get an error of their protocol, whose text is what their developers
see of it, and says where it happened:

` + "```" + `
weft: upstream connect failed [org.example.Shop.buy], listener client, cluster shop, host 10.0.0.7:20880
` + "```" + `

That is the text of the reason, then service and method of the request as filters
and routes left them, the names of the listener and of the cluster that the route
chose, and the address of the last host that was tried, as far as there are any. If
a filter answered, the first 256 bytes of its content follow the reason. There is no
switch that leaves names and addresses out, not for ingress listeners either: who may
call may learn them. Whoever must not is to be kept from the listener.

**Unsent** requests cannot have reached an application: they may be tried again
on another host even if they are not idempotent.

| Reason | Flag | HTTP | gRPC | Dubbo | Bolt | Unsent |
|---|---|---:|---:|---:|---:|---|
`)
	for r := range Reasons() {
		row := r.Traits()
		unsent := ""
		if row.SafeToRetry {
			unsent = "yes"
		}
		fmt.Fprintf(b, "| [`%s`](#%s) | %s | %d | %d | %d | %d | %s |\n",
			row.Name, row.Name, row.Flag, row.HTTP, row.GRPC, row.Dubbo, row.Bolt, unsent)
	}
	b.WriteString("\n## What to do\n")
	for r := range Reasons() {
		row := r.Traits()
		fmt.Fprintf(b, "\n### %s\n\n%q, flag %s, HTTP %d. %s\n", row.Name, row.Text, row.Flag, row.HTTP, row.Hint)
	}
	return b.Bytes()
}
