package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// TestSchemaListsSupportedFeatures verifies that the schema accepts every file of configs and rejects
// unknown names where an editor would complete them.
func TestSchemaListsSupportedFeatures(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(capabilities().Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("weft.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("weft.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(name, text string) error {
		var r document.Report
		n := document.Parse(name, []byte(text), document.Options{Env: func(string) (string, bool) { return "", true }}, &r)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document.Redact(n)))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	files, err := filepath.Glob("../../configs/*.*")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, path := range files {
		if filepath.Ext(path) == ".go" || filepath.Base(path) == "older_form.json" { // has keys in different case
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		if err := validate(path, string(text)); err != nil {
			t.Errorf("the schema rejects %s: %v", path, err)
		}
	}
	if checked < 30 {
		t.Errorf("%d files were checked, want at least 30", checked)
	}
	const file = `{"servers": [{"listeners": [{"name": "l", "address": "127.0.0.1:1", "listener_filters": [{"type": "original_dst"}],
		"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1,Http2", "router_config_name": "t"}}]}],
		"stream_filters": [{"type": "fault", "config": {"abort": {"status": 503, "percentage": 1}}}]}],
		"routers": [{"router_config_name": "t", "virtual_hosts": [{"domains": ["*"], "routers": [{"match": {"prefix": "/"}, "route": {"cluster_name": "a", "upstream_protocol": "Http1",
			"retry_policy": {"retry_on": "5xx, reset", "num_retries": 1}}}]}]}]}],
		"cluster_manager": {"clusters": [{"name": "a", "type": "STATIC", "lb_type": "LB_RANDOM", "upstream_protocol": "Http2", "hosts": [{"address": "127.0.0.1:2"}]}]}}`
	if err := validate("file.json", file); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"type": "fault"`, `"type": "fualt"`},
		{`"type": "proxy"`, `"type": "prxy"`},
		{`"type": "original_dst"`, `"type": "orig_dst"`},
		{`"abort"`, `"abrot"`},
		{`"Http1,Http2"`, `"Http1,Http9"`},
		{`"upstream_protocol": "Http1"`, `"upstream_protocol": "Http"`},
		{`"upstream_protocol": "Http2"`, `"upstream_protocol": "H2"`},
		{`"5xx, reset"`, `"5xx, rest"`},
		{`"LB_RANDOM"`, `"RANDOM"`},
		{`"STATIC"`, `"STATICAL"`},
	} {
		if invalid := strings.Replace(file, c[0], c[1], 1); invalid == file || validate("file.json", invalid) == nil {
			t.Errorf("the schema accepts %s instead of %s", c[1], c[0])
		}
	}
}

// TestSchemaIsDeterministic verifies that the schema does not depend on the order of a map.
func TestSchemaIsDeterministic(t *testing.T) {
	first := capabilities().Schema()
	for range 20 {
		if !bytes.Equal(capabilities().Schema(), first) {
			t.Fatal("two calls return different schemas, want equal ones")
		}
	}
}
