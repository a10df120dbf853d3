package xds

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestStaticListenersWithoutControlPlaneCertificates verifies that static listeners are active
// although the certificates of the control plane cannot be read. The cluster of the control plane
// becomes active once the Source has connected.
func TestStaticListenersWithoutControlPlaneCertificates(t *testing.T) {
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	clusterJSON := controlPlaneWithCA(caFile)
	log := &lineLog{}
	file := xdstest.Bootstrap("GRPC")
	file.StaticResources = xdstest.StaticResourcesJSON([]string{clusterJSON}, []string{xdstest.DirectResponseListenerJSON("static", 80)}, nil)
	s, active := newTestSourceFrom(t, file, slog.New(slog.NewTextHandler(log, nil)))
	if len(active.Listeners) != 1 || len(active.Clusters) != 0 {
		t.Fatalf("%d active listeners and %d clusters, want the listener without the cluster", len(active.Listeners), len(active.Clusters))
	}
	if got := log.lines("level=ERROR"); len(got) != 1 || !strings.Contains(got[0], "ca.pem: no such file") || !strings.Contains(got[0], "control_plane=control") {
		t.Errorf("errors in the log: %q, want one about ca.pem of the control plane", got)
	}
	if err := os.WriteFile(caFile, testpki.New(t).PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	if !slices.ContainsFunc(active.Clusters, func(c *config.Cluster) bool { return c.Name == "control" }) || len(active.Listeners) != 1 {
		t.Errorf("after the connection: %d active listeners and %d clusters, want 1 and the cluster control", len(active.Listeners), len(active.Clusters))
	}
}

// controlPlaneWithCA returns the cluster of the control plane with a CA file.
func controlPlaneWithCA(caFile string) string {
	return strings.TrimSuffix(xdstest.ControlPlaneJSON, "}") + `, "transport_socket": {"name": "tls", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"common_tls_context": {"validation_context": {"trusted_ca": {"filename": "` + caFile + `"}}}}}}`
}

// TestOnlyOwnClustersAreOmitted verifies that a cluster of the file is active although it has the
// name of a control plane whose certificates cannot be read.
func TestOnlyOwnClustersAreOmitted(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	b.StaticResources = xdstest.StaticResourcesJSON([]string{controlPlaneWithCA(filepath.Join(t.TempDir(), "missing.pem"))}, nil, nil)
	s, active := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	file := &config.Snapshot{Bootstrap: b, Clusters: []*config.Cluster{{Name: "control"}}}
	file.Bootstrap.StaticResources = xdstest.StaticResourcesJSON(nil, nil, nil)
	if err := s.stack.SetFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if len(active.Clusters) != 1 || active.Clusters[0] != file.Clusters[0] {
		t.Errorf("active clusters: %v, want that of the file", active.Clusters)
	}
}
