package load

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/transport"
)

// loadServer is a LoadReportingService that a test controls.
type loadServer struct {
	lrsv3.UnimplementedLoadReportingServiceServer

	streams chan *loadStream
}

// loadStream is one stream of a loadServer.
type loadStream struct {
	lrsv3.LoadReportingService_StreamLoadStatsServer

	t        *testing.T
	requests chan *lrsv3.LoadStatsRequest
	end      chan error
}

func (s *loadServer) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
	ls := &loadStream{LoadReportingService_StreamLoadStatsServer: stream, requests: make(chan *lrsv3.LoadStatsRequest, 100), end: make(chan error, 1)}
	s.streams <- ls
	go func() { // ends with the stream
		for {
			r, err := stream.Recv()
			if err != nil {
				close(ls.requests)
				return
			}
			ls.requests <- r
		}
	}()
	select {
	case err := <-ls.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// nextStream returns the next stream and checks its first request.
func (s *loadServer) nextStream(t *testing.T) *loadStream {
	t.Helper()
	stream := <-s.streams
	stream.t = t
	first := <-stream.requests
	if first.GetNode().GetId() != "test" || len(first.GetClusterStats()) != 0 {
		t.Errorf("first request = %v, want the node", first)
	}
	if got := first.GetNode().GetClientFeatures(); len(got) != 1 || got[0] != featureAllClusters {
		t.Errorf("client features = %q, want %q", got, featureAllClusters)
	}
	return stream
}

// sendSettings requests reports about all clusters, at the given interval.
func (s *loadStream) sendSettings(interval time.Duration, perEndpoint bool) {
	s.t.Helper()
	err := s.Send(&lrsv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(interval), ReportEndpointGranularity: perEndpoint})
	if err != nil {
		s.t.Fatal(err)
	}
}

// expectReport returns the next report. It fails the test unless the report has one cluster with
// the given requests in its first locality, over the given interval.
func (s *loadStream) expectReport(interval time.Duration, issued, succeeded, failed uint64) *endpointv3.ClusterStats {
	s.t.Helper()
	r := <-s.requests
	if r.GetNode() != nil || len(r.GetClusterStats()) != 1 {
		s.t.Fatalf("report = %v, want one cluster and no node", r)
	}
	c := r.GetClusterStats()[0]
	sum := &endpointv3.UpstreamLocalityStats{}
	if len(c.GetUpstreamLocalityStats()) > 0 {
		sum = c.GetUpstreamLocalityStats()[0]
	}
	if sum.GetTotalIssuedRequests() != issued || sum.GetTotalSuccessfulRequests() != succeeded || sum.GetTotalErrorRequests() != failed || c.GetLoadReportInterval().AsDuration() != interval {
		s.t.Errorf("report = %v, want %d issued, %d successful and %d failed requests over %v", c, issued, succeeded, failed, interval)
	}
	return c
}

// reportRig is a Reporter in a synctest bubble, with the server that it reports to.
type reportRig struct {
	server      *loadServer
	unreachable atomic.Bool // connects to the server fail
	dials       atomic.Int64
	cluster     *upstream.Cluster
}

func newReportRig(t *testing.T) *reportRig {
	r := &reportRig{server: &loadServer{streams: make(chan *loadStream, 10)}}
	server, ln := grpc.NewServer(), bufconn.Listen(1<<20)
	lrsv3.RegisterLoadReportingServiceServer(server, r.server)
	serveErr := make(chan error)
	go func() { serveErr <- server.Serve(ln) }()

	set := upstream.NewSet(upstream.Options{Policies: map[config.LBPolicy]balance.NewFunc{config.RoundRobin: balance.RoundRobin}})
	change, err := set.Prepare([]*config.Cluster{{Name: "web", LBPolicy: config.RoundRobin, Hosts: []config.Host{{Address: "127.0.0.1:80", Weight: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	change.Commit()
	change.DrainRemoved()
	r.cluster = set.Get("web")

	reporter := &Reporter{
		Name: "control", Node: &corev3.Node{Id: "test"}, Loads: set.NewLoadReporter(),
		ServiceNames: func() map[string]string { return map[string]string{"web": "web.service"} }, OnReport: func() {}, Log: slog.New(slog.DiscardHandler),
		Dialer: &transport.Dialer{Target: bootstrap.Target{Address: "127.0.0.1:1"}, Network: transport.Network{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			r.dials.Add(1)
			if r.unreachable.Load() {
				return nil, errors.New("no server at this address")
			}
			return ln.DialContext(ctx)
		}}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reporter.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		server.Stop()
		<-serveErr
		set.Close()
	})
	return r
}

// forwardConnections forwards connections that end immediately. successes and failures are the
// numbers of connections that succeed and fail.
func (r *reportRig) forwardConnections(t *testing.T, successes, failures int) {
	t.Helper()
	for range successes {
		if err := r.cluster.ForwardConn(t.Context(), upstream.ConnAddrs{}, 1, func(context.Context, *upstream.Host, time.Time) (func() error, error) {
			return func() error { return nil }, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range failures {
		if err := r.cluster.ForwardConn(t.Context(), upstream.ConnAddrs{}, 1, func(context.Context, *upstream.Host, time.Time) (func() error, error) {
			return nil, errors.New("unreachable")
		}); err == nil {
			t.Fatal("forwarding to the unreachable host succeeded")
		}
	}
}

func TestLoadReportInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReportRig(t)
		s := r.server.nextStream(t)
		r.forwardConnections(t, 7, 0) // not reported: the server has not requested reports yet
		s.sendSettings(10*time.Second, true)
		synctest.Wait()
		requestedAt := time.Now()
		r.forwardConnections(t, 3, 1)
		c := s.expectReport(10*time.Second, 4, 3, 1)
		if took := time.Since(requestedAt); took != 10*time.Second+countingDelay {
			t.Errorf("report after %v, want %v", took, 10*time.Second+countingDelay)
		}
		hosts := c.GetUpstreamLocalityStats()[0].GetUpstreamEndpointStats()
		if len(hosts) != 1 || hosts[0].GetAddress().GetSocketAddress().GetPortValue() != 80 || hosts[0].GetTotalIssuedRequests() != 4 || c.GetClusterServiceName() != "web.service" {
			t.Errorf("report = %v, want 4 requests at port 80 of web.service", c)
		}
		s.sendSettings(10*time.Second, false) // same interval: the next report stays due
		r.forwardConnections(t, 2, 0)
		if c := s.expectReport(10*time.Second+countingDelay, 2, 2, 0); c.GetUpstreamLocalityStats()[0].GetUpstreamEndpointStats() != nil {
			t.Errorf("report = %v, want no endpoint stats", c)
		}
		s.sendSettings(time.Second, false)
		if c := s.expectReport(time.Second+countingDelay, 0, 0, 0); len(c.GetUpstreamLocalityStats()) != 0 {
			t.Errorf("report without load = %v, want no localities", c)
		}
		s.sendSettings(time.Nanosecond, false)
		s.expectReport(minReportInterval+countingDelay, 0, 0, 0)
	})
}

func TestLoadReportAfterReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReportRig(t)
		s := r.server.nextStream(t)
		s.sendSettings(time.Second, false)
		synctest.Wait()
		r.forwardConnections(t, 1, 0)
		s.expectReport(time.Second, 1, 1, 0)
		reportedAt := time.Now().Add(-countingDelay)
		r.forwardConnections(t, 2, 1)
		r.unreachable.Store(true)
		s.end <- errors.New("stream ended by the test")
		previousDials := r.dials.Load()
		<-time.After(10 * time.Minute)
		if attempts := r.dials.Load() - previousDials; attempts < 20 || attempts > 60 {
			t.Errorf("%d attempts in ten minutes, want 20 to 60", attempts)
		}
		r.forwardConnections(t, 4, 0)
		r.unreachable.Store(false)
		s = r.server.nextStream(t)
		s.sendSettings(time.Second, false)
		synctest.Wait()
		s.expectReport(time.Since(reportedAt)+time.Second, 7, 6, 1)
		s.expectReport(time.Second+countingDelay, 0, 0, 0)
	})
}

func TestInvalidLoadReportIntervalEndsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReportRig(t)
		for _, interval := range []time.Duration{0, -time.Second} {
			s := r.server.nextStream(t)
			s.sendSettings(interval, false)
			if got, ok := <-s.requests; ok {
				t.Errorf("request after an interval of %v: %v, want the end of the stream", interval, got)
			}
		}
	})
}

func TestLoadByLocalityAndPriority(t *testing.T) {
	east, west := config.Locality{Region: "r", Zone: "east"}, config.Locality{Region: "r", Zone: "west"}
	loads := []upstream.ClusterLoad{{
		Name: "web", Interval: 1500 * time.Millisecond, Rejected: 3, Dropped: map[string]uint64{"b": 1, "a": 2},
		Hosts: []upstream.HostLoad{
			{Address: "10.0.0.1:80", Locality: west, Issued: 1, Succeeded: 1},
			{Address: "[::1]:81", Locality: east, Issued: 2, Succeeded: 1, Failed: 1},
			{Address: "/run/app", Locality: east, Issued: 4, Succeeded: 1, InFlight: 3},
			{Address: "10.0.0.2:80", Locality: east, Priority: 1, Issued: 8, Succeeded: 8},
		},
	}}
	locality := func(zone string) *corev3.Locality { return &corev3.Locality{Region: "r", Zone: zone} }
	sum := func(zone string, priority uint32, issued, succeeded, failed, inProgress uint64) *endpointv3.UpstreamLocalityStats {
		return &endpointv3.UpstreamLocalityStats{
			Locality: locality(zone), Priority: priority, TotalIssuedRequests: issued, TotalSuccessfulRequests: succeeded,
			TotalErrorRequests: failed, TotalRequestsInProgress: inProgress,
		}
	}
	want := []*endpointv3.ClusterStats{{
		ClusterName: "web", ClusterServiceName: "web.service", TotalDroppedRequests: 6, LoadReportInterval: durationpb.New(1500 * time.Millisecond),
		DroppedRequests: []*endpointv3.ClusterStats_DroppedRequests{{Category: "a", DroppedCount: 2}, {Category: "b", DroppedCount: 1}},
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{
			sum("east", 0, 6, 2, 1, 3), sum("west", 0, 1, 1, 0, 0), sum("east", 1, 8, 8, 0, 0),
		},
	}}
	got := clusterStats(loads, map[string]string{"web": "web.service"}, false)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("clusterStats (-want +got):\n%s", diff)
	}
	hosts := clusterStats(loads, nil, true)[0].GetUpstreamLocalityStats()[0].GetUpstreamEndpointStats()
	if name := addressOf("web.example:81").GetSocketAddress(); name.GetAddress() != "web.example" || name.GetPortValue() != 81 {
		t.Errorf("addressOf(web.example:81) = %v, want a socket address with this name and port", name)
	}
	if len(hosts) != 2 || hosts[0].GetAddress().GetSocketAddress().GetAddress() != "::1" || hosts[1].GetAddress().GetPipe().GetPath() != "/run/app" || hosts[1].GetTotalRequestsInProgress() != 3 {
		t.Errorf("host stats = %v, want ::1 and /run/app with 3 requests in progress", hosts)
	}
}
