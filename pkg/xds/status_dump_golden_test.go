package xds

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

var update = flag.Bool("update", false, "write the dumps to testdata/dump.txt")

// volatileValues matches the times and certificates in a dump, which differ in each run.
var volatileValues = regexp.MustCompile(`"(last_updated|last_update_attempt|inline_bytes|inline_string)":"[^"]*"`)

// TestDumpGolden compares the JSON of each dump with testdata/dump.txt.
func TestDumpGolden(t *testing.T) {
	pki := testpki.New(t)
	b := xdstest.Bootstrap("DELTA_GRPC")
	b.Node = []byte(`{"id": "n", "metadata": {"a": [1, null]}}`)
	b.DynamicResources = []byte(`{"ads_config": {"api_type": "DELTA_GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"},
		"initial_metadata": [{"key": "authorization", "value": "s3cret"}]}]}, "cds_config": {"ads": {}}, "lds_config": {"ads": {}}}`)
	b.StaticResources = xdstest.StaticResourcesJSON(
		[]string{xdstest.ControlPlaneJSON}, []string{xdstest.DirectResponseListenerJSON("static", 81)}, []string{xdstest.SecretJSON(t, "static secret")})
	s, _ := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Endpoints("hosts", 80), xdstest.Cluster("warming", "others", "", 0),
		xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Routes("table", "x"), xdstest.Secret("mine", pki.Issue(testpki.Spec{})),
		xdstest.Listener("waits", 2001, "no table", "", 0), xdstest.DubboListener("dubbo", "dubbo routes", 0), xdstest.DubboRoutes("dubbo routes", "a"),
		xdstest.FilteredListener("filtered", "table", 0, "settings"), xdstest.Extension("settings", "https://a"),
		xdstest.Resource{URL: resource.ListenerType, Name: "bad", Body: []byte{0xff}}, xdstest.Resource{URL: resource.ClusterType, Name: "bad", Body: []byte{0xff}})
	// The second version of a cluster is rejected.
	respondWith(t, s, xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: []byte{0xff}})

	var got bytes.Buffer
	for _, o := range []status.DumpOptions{
		{},
		{Endpoints: true},
		{Resource: "bootstrap"},
		{Resource: "static_clusters"},
		{Resource: "dynamic_active_clusters"},
		{Resource: "dynamic_warming_clusters"},
		{Resource: "static_listeners"},
		{Resource: "dynamic_listeners"},
		{Resource: "dynamic_route_configs"},
		{Resource: "static_secrets"},
		{Resource: "dynamic_active_secrets"},
		{Resource: "ecds_filters"},
		{Resource: "dynamic_endpoint_configs"},
	} {
		configs, err := s.Dump(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "# resource=%s endpoints=%v\n", o.Resource, o.Endpoints)
		for _, c := range configs {
			got.Write(append(volatileValues.ReplaceAll(c, []byte(`"$1":"…"`)), '\n'))
		}
	}
	const path = "testdata/dump.txt"
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the dumps are\n%s\nwant the content of %s:\n%s", got.Bytes(), path, want)
	}
}
