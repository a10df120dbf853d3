package protocol

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/errors.md")

const errorsDoc = "../../docs/errors.md"

// TestErrorsDocMatchesTable keeps docs/errors.md in step with the Reason table.
func TestErrorsDocMatchesTable(t *testing.T) {
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
		t.Errorf("docs/errors.md differs from the table; regenerate it with: go test ./pkg/protocol -run ErrorsDoc -update\n- table + file:\n%s", diff)
	}
}

func TestReasonsAreCompleteAndUnique(t *testing.T) {
	names, texts := map[string]Reason{}, map[string]Reason{}
	for r := range Reasons() {
		row := r.Spec()
		if row.Name == "" || row.Flag == "" || row.Text == "" || row.Hint == "" {
			t.Errorf("reason %d %q: empty name, flag, text or hint", r, row.Name)
		}
		if row.HTTP < 400 || row.HTTP > 599 {
			t.Errorf("%v: HTTP status %d, want 400 to 599", r, row.HTTP)
		}
		if row.GRPC < 1 || row.GRPC > 16 {
			t.Errorf("%v: gRPC status %d, want 1 to 16", r, row.GRPC)
		}
		if row.Dubbo == 0 || row.Dubbo == 20 || row.Bolt == 0 {
			t.Errorf("%v: Dubbo status %d or Bolt status %d is not an error status", r, row.Dubbo, row.Bolt)
		}
		if other, ok := names[row.Name]; ok {
			t.Errorf("the name %q belongs to the reasons %d and %d", row.Name, other, r)
		}
		if other, ok := texts[row.Text]; ok {
			t.Errorf("the text %q belongs to the reasons %d and %d", row.Text, other, r)
		}
		names[row.Name], texts[row.Text] = r, r
	}
}

func appendErrorsDoc(dst []byte) []byte {
	b := bytes.NewBuffer(dst)
	b.WriteString(`# Errors and local replies

<!-- Written by go test ./pkg/protocol -run ErrorsDoc -update from the table in pkg/protocol/reason.go. Change it there. -->

This page lists the reasons for which Weft sends a local reply or ends a request. The reason
determines the status of the response in the client's protocol; a filter or a route may set another
HTTP status. The access log has the name of the reason in ` + "`%response_reason%`" + `, the flag in
` + "`%response_flag%`" + ` and the details in ` + "`%response_detail%`" + `. Metrics have the name in the label
` + "`reason`" + `. A flag "-" means that Envoy has none for the reason. More flags may be added,
separated by commas (` + "`URX,UF`" + `):

- ` + "`DI`" + `: the fault filter delayed the request;
- ` + "`URX`" + `: the last attempt failed, and the retry policy allows no more;
- ` + "`UO`" + ` without the reason ` + "`overflow`" + `: the last attempt failed, and max_retries or retry_budget of the
  cluster's circuit_breakers allows no retry;
- ` + "`UAEX`" + `: the authorization service of ext_authz rejected the request or failed;
- ` + "`LH`" + `: the health check failed because of ` + "`/healthcheck/fail`" + ` of the admin port.

**HTTP** clients get the text of the reason as the body, unless a filter sets another one. The
text contains nothing of the request, no name of a listener or a cluster, and no address. gRPC
clients get the text in ` + "`grpc-message`" + `.

**RPC** clients get an error of their protocol. Its text says where the error happened:

` + "```" + `
weft: upstream connect failed [org.example.Shop.buy], listener client, cluster shop, host 10.0.0.7:20880
` + "```" + `

The text consists of these parts, as far as they exist:

- the text of the reason and, if a filter or a direct response made the response without a reason,
  the first 256 bytes of its body;
- the service and method of the request, after filters and routes have changed them;
- the names of the listener and of the cluster that the route chose;
- the address of the last host to which Weft tried to send the request.

You cannot turn off names and addresses. If clients must not see them, they must not be able to
reach the listener.

A "yes" in the column **Unsent** means that the request cannot have reached an application: Weft
may retry it on another host even if it is not idempotent.

| Reason | Flag | HTTP | gRPC | Dubbo | Bolt | Unsent |
|---|---|---:|---:|---:|---:|---|
`)
	for r := range Reasons() {
		row := r.Spec()
		unsent := ""
		if row.SafeToRetry {
			unsent = "yes"
		}
		fmt.Fprintf(b, "| [`%s`](#%s) | %s | %d | %d | %d | %d | %s |\n",
			row.Name, row.Name, row.Flag, row.HTTP, row.GRPC, row.Dubbo, row.Bolt, unsent)
	}
	appendEnvoyReplies(b)
	b.WriteString("\n## What to do\n")
	for r := range Reasons() {
		row := r.Spec()
		fmt.Fprintf(b, "\n### %s\n\n%q, flag %s, HTTP %d. %s\n", row.Name, row.Text, row.Flag, row.HTTP, row.Hint)
	}
	return b.Bytes()
}

func appendEnvoyReplies(b *bytes.Buffer) {
	b.WriteString(`
## Replies of Envoy

A listener from an Envoy file or a control plane sends the local replies of Envoy: its statuses and
texts, also in ` + "`grpc-message`" + `, with the gRPC status that follows from the HTTP status. Its access log has
the flags of Envoy, and ` + "`%RESPONSE_CODE_DETAILS%`" + `. Filters and routes have replies of their own, such as
` + "`RBAC: access denied`" + `. ` + "`local_reply_config`" + ` changes replies.

If the last attempt failed without a response, the text is ` + "`upstream connect error or disconnect/reset before headers. reset reason: connection termination`" + `,
after retries with ` + "`retried and the latest reset reason`" + `. The details are
` + "`upstream_reset_before_response_started{connection_termination}`" + `. If the response had begun, they
begin with ` + "`upstream_reset_after_response_started`" + `. The table has only the reset reason.

| Reason | Flag | HTTP | Text | Details |
|---|---|---:|---|---|
`)
	for r := range Reasons() {
		row := &envoyReplies[r]
		text, details, flag := row.Body, row.Details, row.Flag
		if row.ResetReason != "" {
			text, details = "reset reason: "+row.ResetReason, "{"+strings.ReplaceAll(row.ResetReason, " ", "_")+"}"
		}
		if flag == "" {
			flag = r.Spec().Flag
		}
		fmt.Fprintf(b, "| [`%s`](#%s) | %s | %d | %s | `%s` |\n", r, r, flag, row.Status, text, details)
	}
}
