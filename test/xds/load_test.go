package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	setmetadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// requestCounts holds the reported counts of a zone.
type requestCounts struct{ issued, succeeded, failed uint64 }

// loadServer is an LRS server that sums load reports.
type loadServer struct {
	lrsv3.UnimplementedLoadReportingServiceServer

	t       testing.TB
	address string

	mu          sync.Mutex
	zones       map[string]requestCounts // guarded by mu; of the cluster "app"
	reports     int                      // guarded by mu
	endStream   bool                     // guarded by mu; the next report ends the stream
	streamEnded chan struct{}            // guarded by mu; closed after that report
}

// start serves until stop is called.
func (s *loadServer) start() (stop func()) {
	s.t.Helper()
	ln, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	server := grpc.NewServer()
	lrsv3.RegisterLoadReportingServiceServer(server, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(ln) }) // ends with Stop
	stop = sync.OnceFunc(func() { server.Stop(); wg.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// StreamLoadStats implements lrsv3.LoadReportingServiceServer.
func (s *loadServer) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
	if first, err := stream.Recv(); err != nil || first.GetNode().GetId() != "test-id" {
		return fmt.Errorf("the first request is %v: %w", first, err)
	}
	err := stream.Send(&lrsv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(200 * time.Millisecond), ReportEndpointGranularity: true})
	for err == nil {
		var r *lrsv3.LoadStatsRequest
		if r, err = stream.Recv(); err == nil && s.addReport(r) {
			return errors.New("stream ended by the test")
		}
	}
	return err
}

// addReport adds a report, and returns true if the stream must end.
func (s *loadServer) addReport(r *lrsv3.LoadStatsRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports++
	for _, c := range r.GetClusterStats() {
		if c.GetClusterName() != "app" {
			continue
		}
		for _, l := range c.GetUpstreamLocalityStats() {
			z := s.zones[l.GetLocality().GetZone()]
			z.issued += l.GetTotalIssuedRequests()
			z.succeeded += l.GetTotalSuccessfulRequests()
			z.failed += l.GetTotalErrorRequests()
			s.zones[l.GetLocality().GetZone()] = z
			if len(l.GetUpstreamEndpointStats()) == 0 {
				s.t.Errorf("no endpoint stats: %v", l)
			}
		}
	}
	if !s.endStream {
		return false
	}
	s.endStream = false
	close(s.streamEnded)
	return true
}

// endStreamAtNextReport ends the stream at the next report and returns after that report.
func (s *loadServer) endStreamAtNextReport() {
	s.mu.Lock()
	s.endStream, s.streamEnded = true, make(chan struct{})
	ended := s.streamEnded
	s.mu.Unlock()
	<-ended
}

func (s *loadServer) totals() (zones map[string]requestCounts, reports int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.zones), s.reports
}

// startFailingOrigin starts a server that responds with 500.
func startFailingOrigin(t testing.TB) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", newHost()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }),
		ReadHeaderTimeout: waitTimeout,
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) }) // ends with Close
	t.Cleanup(func() { _ = s.Close(); wg.Wait() })
	return ln.Addr().String()
}

// withLoadReporting adds a load reporting server and the status socket to a configuration.
func withLoadReporting(config, load, status string) string {
	host, port, _ := net.SplitHostPort(load)
	config = strings.Replace(config, `"static_resources": {"clusters": [`, fmt.Sprintf(`"static_resources": {"clusters": [
    {"name": "load", "type": "STATIC", "connect_timeout": "2s", "load_assignment": {"cluster_name": "load", "endpoints": [
      {"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %s}}}}]}]}},`, host, port), 1)
	return strings.Replace(config, `"node":`, fmt.Sprintf(`"cluster_manager": {"load_stats_config": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "load"}}]}},
  "xds_status": {"address": %q},
  "node":`, status), 1)
}

// TestLoadReportsMatchRequests verifies that the sums of load reports equal the requests,
// although the load reporting server disconnects, is down for a while and hosts change.
func TestLoadReportsMatchRequests(t *testing.T) {
	t.Parallel()
	p, host := newControlPlane(t), newHost()
	s := &loadServer{t: t, address: newHost() + ":18001", zones: map[string]requestCounts{}}
	stop := s.start()
	startWeft(t, withLoadReporting(bootstrap("DELTA_GRPC", p.address, host+":9901"), s.address, filepath.Join(t.TempDir(), "status")), nil)
	good, other, broken := startOrigin(t, "good"), startOrigin(t, "other"), startFailingOrigin(t)
	setHost := func(good string) {
		assignment := endpointsOf("app", good)
		assignment.Endpoints[0].Locality = &corev3.Locality{Zone: "good"}
		failing := endpointsOf("app", broken).GetEndpoints()[0]
		failing.Locality = &corev3.Locality{Zone: "bad"}
		assignment.Endpoints = append(assignment.Endpoints, failing)
		p.put(assignment)
		p.publish()
	}
	p.put(edsCluster("app"), httpListener("front", host+":10000", "routes"), routeTable("routes", directRoute("/ready", "ready"), routeTo("/", "app")))
	setHost(good)
	c, url := client(t), "http://"+host+":10000"
	awaitResponse(t, c, url+"/ready", "ready")
	eventually(t, func() string {
		if _, n := s.totals(); n < 2 {
			return "no load reported"
		}
		return ""
	})

	want := map[string]requestCounts{}
	send := func(n int) {
		for range n {
			text, err := get(t.Context(), c, url+"/")
			zone, failed := "good", uint64(0)
			if strings.HasPrefix(text, "500") {
				zone, failed = "bad", 1
			} else if err != nil || text != "good" && text != "other" {
				t.Fatalf("%s responded %q, %v; want good or other, nil", url, text, err)
			}
			z := want[zone]
			z.issued, z.succeeded, z.failed = z.issued+1, z.succeeded+1-failed, z.failed+failed
			want[zone] = z
		}
	}
	send(100)
	s.endStreamAtNextReport()
	stop()
	send(100)
	ackCount := p.ackCount()
	setHost(other)
	p.await(ackCount, func(a ack) bool { return a.typeName == "ClusterLoadAssignment" })
	send(100)
	s.start()
	send(100)
	s.endStreamAtNextReport() // the server keeps running
	send(100)
	eventually(t, func() string {
		if got, _ := s.totals(); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("reported %v, sent %v", got, want)
		}
		return ""
	})
	_, previous := s.totals()
	eventually(t, func() string {
		if _, n := s.totals(); n < previous+3 {
			return "no further reports"
		}
		return ""
	})
	if got, _ := s.totals(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("later reports: %v, sent %v; want equal counts", got, want)
	}
}

// TestClientStatusOverUnixSocket verifies the client status over gRPC on a Unix socket (CSDS).
func TestClientStatusOverUnixSocket(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host := newControlPlane(t), newHost()
			path := filepath.Join(t.TempDir(), "status")
			startWeft(t, withLoadReporting(bootstrap(apiType, p.address, host+":9901"), newHost()+":1", path), nil) // the load reporting server does not exist
			p.put(edsCluster("app"), endpointsOf("app", startOrigin(t, "app")), routeTable("routes", routeTo("/", "app")), httpListener("front", host+":10000", "routes"),
				httpListener("bad", host+":10001", "routes", &hcmv3.HttpFilter{
					Name: "unknown-filter", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(&setmetadatav3.Config{})},
				}))
			p.publish()
			awaitResponse(t, client(t), "http://"+host+":10000/", "app")

			conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			resp, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
			if err != nil || len(resp.GetConfig()) != 1 || resp.GetConfig()[0].GetNode().GetId() != "test-id" {
				t.Fatalf("FetchClientStatus = %v, %v; want one configuration of test-id, nil", resp, err)
			}
			got := map[string]adminv3.ClientResourceStatus{}
			for _, r := range resp.GetConfig()[0].GetGenericXdsConfigs() {
				got[shortType(r.GetTypeUrl())+" "+r.GetName()] = r.GetClientStatus()
				if r.GetName() == "bad" && !strings.Contains(r.GetErrorState().GetDetails(), "unknown-filter") {
					t.Errorf("the error is %v, want unknown-filter", r.GetErrorState())
				}
			}
			for name, want := range map[string]adminv3.ClientResourceStatus{
				"Cluster app": adminv3.ClientResourceStatus_ACKED, "ClusterLoadAssignment app": adminv3.ClientResourceStatus_ACKED,
				"RouteConfiguration routes": adminv3.ClientResourceStatus_ACKED, "Listener front": adminv3.ClientResourceStatus_ACKED,
				"Listener bad": adminv3.ClientResourceStatus_NACKED,
			} {
				if got[name] != want {
					t.Errorf("%s is %v, want %v", name, got[name], want)
				}
			}
		})
	}
}
