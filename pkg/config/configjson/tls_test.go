package configjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// tlsPreparations are the preparations of TestEveryKeyHasAnEffect for the keys of every
// tls_context.
func tlsPreparations() []struct{ path, patch string } {
	const enabled = `{"status": true, "cert_chain": "own.pem", "private_key": "own.key", "ca_cert": "own-ca.pem"}`
	out := []struct{ path, patch string }{
		{"listeners[].inspector", `{"servers": [{"listeners": [{"filter_chains": [{"tls_context": ` + enabled + `}]}]}]}`},
		{"clusters[].cluster_manager_tls", `{"cluster_manager": {"tls_context": ` + enabled + `}}`},
	}
	for path, format := range map[string]string{
		"filter_chains[].tls_context.":       `{"servers": [{"listeners": [{"filter_chains": [{"tls_context": %}]}]}]}`,
		"filter_chains[].tls_context_set[].": `{"servers": [{"listeners": [{"filter_chains": [{"tls_context_set": [%]}]}]}]}`,
		"clusters[].tls_context.":            `{"cluster_manager": {"clusters": [{"tls_context": %}]}}`,
		"cluster_manager.tls_context.":       `{"cluster_manager": {"tls_context": %, "clusters": [{"cluster_manager_tls": true}]}}`,
	} {
		add := func(key, value string) {
			out = append(out, struct{ path, patch string }{path + key, strings.Replace(format, "%", value, 1)})
		}
		add("", enabled)
		add("match_", `{"require_client_cert": true}`)
		add("match_typed_subject_alt_names[]", `{"match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "x"}}]}`)
		for _, key := range []string{"prefix", "suffix", "contains", "safe_regex"} {
			add("match_typed_subject_alt_names[].matcher."+key, `{"match_typed_subject_alt_names": [{"matcher": {"exact": null}}]}`)
		}
		out = append(out, struct{ path, patch string }{path + "status", strings.Replace(strings.Replace(format,
			`, "clusters": [{"cluster_manager_tls": true}]`, `, "clusters": [{"cluster_manager_tls": null}]`, 1), "%", `{"status": null}`, 1)})
	}
	return out
}

// secureFile returns a file with the given TLS settings for a listener and a cluster.
func secureFile(t *testing.T, listener, cluster string) map[string]any {
	t.Helper()
	doc := decodeJSON(t, fullConfig)
	doc = merge(doc, decodeJSON(t, `{"servers": [{"listeners": [{"filter_chains": [{`+listener+`}]}]}]}`))
	return merge(doc, decodeJSON(t, `{"cluster_manager": {"clusters": [{`+cluster+`}]}}`))
}

func TestTLSContexts(t *testing.T) {
	const certificate = `"status": true, "cert_chain": "own.pem", "private_key": "own.key"`
	doc := secureFile(t, `"tls_context_set": {"=": [
		{`+certificate+`, "server_name": "a.example", "ca_cert": "ca.pem", "require_client_cert": true, "alpn": "h2, http/1.1",
			"min_version": "tlsv1_3", "ecdh_curves": "x25519:P256", "match_typed_subject_alt_names": [
				{"san_type": "URI", "matcher": {"prefix": "spiffe://shop/"}}, {"san_type": "DNS", "matcher": {"safe_regex": {"regex": "[ab]"}}}]},
		{"status": false, "cert_chain": "nowhere"}, {}, {`+certificate+`}]}`,
		`"tls_context": {"status": true, "server_name": "b.example"}, "hosts": [{"address": "127.0.0.1:2", "tls_disable": true}]`)
	s, diags := load(t, doc)
	if diags.Failed() || s == nil {
		t.Fatal(diags)
	}
	contexts := s.Listeners[0].FilterChains[0].TLS
	want := &config.TLS{
		ServerName: "a.example", Certificate: config.PEM{Path: "own.pem"}, Key: config.PEM{Path: "own.key"},
		TrustedCA: config.PEM{Path: "ca.pem"}, ClientAuth: config.RequireAndVerifyClientCert,
		ALPN: []string{"h2", "http/1.1"}, MinVersion: config.TLS13, Curves: []string{"x25519", "P256"},
		MatchSANs: []config.SANMatcher{
			{Type: config.SANTypeURI, Name: config.ValueMatch{Kind: config.ValuePrefix, Text: "spiffe://shop/"}},
			{Type: config.SANTypeDNS, Name: config.ValueMatch{Kind: config.ValueRegex, Text: "[ab]"}},
		},
		HandshakeTimeout: contexts[0].HandshakeTimeout,
	}
	if len(contexts) != 2 || !reflect.DeepEqual(contexts[0], want) {
		t.Errorf("%d contexts, the first is %+v; want 2 and %+v", len(contexts), contexts[0], want)
	}
	if c := s.Clusters[0]; c.TLS == nil || c.TLS.ServerName != "b.example" || !c.Hosts[0].NoTLS {
		t.Errorf("TLS settings of the cluster %+v, hosts %+v; want server name b.example, and no TLS for the first host", c.TLS, c.Hosts)
	}
}

func TestInvalidTLSContextsAreRejected(t *testing.T) {
	const certificate = `"status": true, "cert_chain": "own.pem", "private_key": "own.key"`
	for _, test := range []struct{ name, listener, cluster, want string }{
		{"no certificate", `"tls_context": {"status": true}`, ``, "a server needs cert_chain and private_key"},
		{"missing file", `"tls_context": {"status": true, "cert_chain": "nowhere.pem", "private_key": "own.key"}`, ``, "cert_chain: open nowhere.pem: file does not exist"},
		{"key of another certificate", `"tls_context": {"status": true, "cert_chain": "own.pem", "private_key": "stranger.key"}`, ``, "private key does not match"},
		{"client verification without CAs", `"tls_context": {` + certificate + `, "require_client_cert": true}`, ``, "without ca_cert"},
		{"client names without verification", `"tls_context": {` + certificate + `, "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "a"}}]}`, ``, "requires require_client_cert or verify_client"},
		{"two matchers", `"tls_context": {` + certificate + `, "ca_cert": "ca.pem", "require_client_cert": true, "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "a", "prefix": "b"}}]}`, ``, "expected one of exact"},
		{"misspelled cipher suite", `"tls_context": {` + certificate + `, "cipher_suites": "ECDHE-RSA-AES256-GCM-SHA348"}`, ``, `did you mean "ECDHE-RSA-AES256-GCM-SHA384"`},
		{"unknown curve", `"tls_context": {` + certificate + `, "ecdh_curves": "p257"}`, ``, "unknown curve"},
		{"maximum version below the minimum", `"tls_context": {` + certificate + `, "min_version": "tlsv1_3", "max_version": "tlsv1_2"}`, ``, "lower than the minimum version"},
		{"tls_context_set with tls_context", `"tls_context": {` + certificate + `}, "tls_context_set": [{` + certificate + `}]`, ``, "mutually exclusive"},
		{"CA file without a certificate", ``, `"tls_context": {"status": true, "ca_cert": "own.key"}`, "it contains no certificate"},
		{"cluster_manager without tls_context", ``, `"cluster_manager_tls": true`, "cluster_manager has no enabled tls_context"},
		{"SDS", `"tls_context": {` + certificate + `, "sds_source": {"a": 1}}`, ``, "sds_source is not supported yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, diags := load(t, secureFile(t, test.listener, test.cluster)); !strings.Contains(diags.Errors().Error(), test.want) {
				t.Errorf("diagnostics %v, want an error with %q", diags, test.want)
			}
		})
	}
}

func TestWeakTLSSettingsWarn(t *testing.T) {
	const certificate = `"status": true, "cert_chain": "own.pem", "private_key": "own.key"`
	for _, test := range []struct{ name, listener, cluster, want string }{
		{"old versions", `"tls_context": {` + certificate + `, "min_version": "tlsv1_0"}`, ``, "RFC 8996"},
		{"weak suites", `"tls_context": {` + certificate + `, "cipher_suites": "AES128-SHA"}`, ``, "is weak"},
		{"no verification", ``, `"tls_context": {"status": true, "insecure_skip": true}`, "insecure_skip disables the verification"},
		{"clients without a certificate", `"tls_context": {` + certificate + `, "ca_cert": "ca.pem", "verify_client": true, "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "a"}}]}`, ``, "clients without a certificate are accepted"},
		{"TLS without status", `"tls_context": {"cert_chain": "own.pem", "private_key": "own.key"}`, ``, "TLS is disabled"},
		{"TLS to hosts without status", ``, `"tls_context": {"ca_cert": "ca.pem"}`, "TLS is disabled"},
		{"plaintext and client certificates", `"tls_context": {` + certificate + `, "ca_cert": "ca.pem", "require_client_cert": true}}], "inspector": true, "stream_filters": [{`, ``, "plaintext clients are accepted"},
		{"contexts with different client verification", `"tls_context_set": {"=": [{` + certificate + `, "ca_cert": "ca.pem", "require_client_cert": true}, {` + certificate + `}]}`, ``, "one context may accept a client that another rejects"},
		{"ALPN protocol that is not in downstream_protocol", `"tls_context": {` + certificate + `, "alpn": "h2,http/1.1"}`, ``, "the ALPN protocol h2 is not in downstream_protocol"},
		{"fallback to plaintext", `"tls_context": {"status": true, "cert_chain": "nowhere.pem", "private_key": "own.key", "fall_back": true}`, ``, "the listener serves plaintext"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, diags := load(t, secureFile(t, test.listener, test.cluster))
			if s == nil || !strings.Contains(diags.Error(), test.want) {
				t.Errorf("diagnostics %v, want a warning with %q", diags, test.want)
			}
		})
	}
}

// TestCertificatePathRelativeToFile verifies that relative certificate paths refer to the working
// directory first, as in MOSN, and then to the directory of the configuration.
func TestCertificatePathRelativeToFile(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{})
	doc := secureFile(t, `"tls_context": {"status": true, "cert_chain": "own.pem", "private_key": "own.key"}`, ``)
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"etc/weft/own.pem": {Data: leaf.Cert}, "etc/weft/own.key": {Data: leaf.Key}, "own.key": {Data: leaf.Key}}
	s, diags := Parse("etc/weft/file.json", data, testCapabilities(), Options{Files: memFS{files}})
	if s == nil {
		t.Fatal(diags)
	}
	got := s.Listeners[0].FilterChains[0].TLS[0]
	if got.Certificate.Path != "etc/weft/own.pem" || got.Key.Path != "own.key" {
		t.Errorf("certificate %q, key %q; want etc/weft/own.pem, own.key", got.Certificate.Path, got.Key.Path)
	}
}

// exampleOptions returns options with the certificates that the examples refer to.
func exampleOptions(t *testing.T) Options {
	t.Helper()
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{})
	certs := fstest.MapFS{"certs/ca.pem": {Data: ca.PEM}}
	for _, name := range []string{"shop", "api", "front", "orders"} {
		certs["certs/"+name+".pem"], certs["certs/"+name+".key"] = &mapFile{Data: leaf.Cert}, &mapFile{Data: leaf.Key}
	}
	return Options{Files: siblingFiles{memFS{certs}}}
}

// siblingFiles looks up files in memory first, then in the operating system.
type siblingFiles struct{ memFS }

func (f siblingFiles) ReadFile(name string) ([]byte, error) {
	if data, err := f.memFS.ReadFile(name); err == nil {
		return data, nil
	}
	return osFiles{}.ReadFile(name)
}
