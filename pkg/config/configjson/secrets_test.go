package configjson

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestBootstrapSecretsAreRedacted verifies that secrets in a bootstrap are redacted, in both
// spellings of their keys.
func TestBootstrapSecretsAreRedacted(t *testing.T) {
	const text = `
dynamic_resources:
  ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: shown-1}, initial_metadata: [{key: authorization, value: s3cret-1}]}]}
cluster_manager:
  load_stats_config: {api_type: GRPC, grpcServices: [{initialMetadata: [{key: authorization, value: s3cret-2}]}]}
static_resources:
  secrets:
  - name: shown-2
    tls_certificate: {certificate_chain: {inline_string: shown-3}, private_key: {inline_bytes: s3cret-3}, password: {inline_string: s3cret-4}}
  - {name: b, tlsCertificate: {privateKey: {inlineBytes: s3cret-5}}}
  - {name: c, session_ticket_keys: {keys: [{inline_bytes: s3cret-6}]}}
  - {name: d, generic_secret: {secret: {inline_string: s3cret-7}}}
  listeners:
  - {name: shown-4, filter_chains: [{filters: [{typed_config: {providers: {p: {local_jwks: {inline_string: s3cret-8}}}}}]}]}
`
	f, diagnostics := Open("a.yaml", testCapabilities(), Options{Files: memFS{fstest.MapFS{"a.yaml": {Data: []byte(text)}}}})
	if f == nil {
		t.Fatal(diagnostics)
	}
	redacted := string(f.Redacted())
	if strings.Contains(redacted, "s3cret") || strings.Count(redacted, "shown-") != 4 {
		t.Errorf("Redacted = %s, want it without secrets, and with four values that begin with shown-", redacted)
	}
	if b := f.Snapshot.Bootstrap; !strings.Contains(string(b.DynamicResources), "s3cret-1") || !strings.Contains(string(b.StaticResources), "s3cret-8") {
		t.Error("the bootstrap does not contain the secrets")
	}
}
