package e2e

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// istioExample sends a request through two sidecars. Each reports metrics with both workloads, and
// the metadata that they exchange reaches neither the client nor the upstream.
func istioExample(t *testing.T) {
	app := startUpstream(t, describeRequest)
	e := loadExample(t, "istio.json")
	e.replace(`"address": "`+e.address("8080")+`"`, `"address": "`+app.address+`"`)
	w := e.run("istio.json")
	w.admin = e.address("34937")
	got := sendRequest(t, newClient(t), "GET", "http://"+e.address("2051")+"/a", "")
	if got.status != 200 || strings.Contains(strings.ToLower(got.body), workload.FieldMetadata) || got.header.Get(workload.FieldMetadata) != "" {
		t.Errorf("the response is %d, %v\n%s", got.status, got.header, got.body)
	}
	labels := []string{
		`source_workload="web"`, `source_app="web"`, `source_canonical_revision="v1"`, `source_cluster="Kubernetes"`,
		`destination_workload="shop-v2"`, `destination_workload_namespace="default"`, `destination_version="v2"`,
		`request_protocol="http"`, `response_code="200"`, `response_flags="-"`,
	}
	for _, reporter := range []string{`reporter="source"`, `reporter="destination"`} {
		eventually(t, "the request is counted, "+reporter, func() bool {
			return w.metric("istio_requests_total", append(labels, reporter)...) == 1
		})
		if n := w.metric("istio_request_duration_milliseconds_count", append(labels, reporter)...); n != 1 {
			t.Errorf("%s: durations of %v requests, want 1", reporter, n)
		}
	}
}
