// Package load reports the load of clusters to a server, with
// envoy.service.load_stats.v3.LoadReportingService. The first request identifies the node. The
// server responds with the clusters to report and the interval, and may change both at any time.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/xds/transport"
)

// Reporter keeps a load reporting stream open and reconnects when the stream ends. The caller sets
// the exported fields and calls Run once.
type Reporter struct {
	Name         string                   // name of the cluster of the server
	Dialer       *transport.Dialer        // Run closes it
	Node         *corev3.Node             // not modified
	Loads        *upstream.LoadReporter   // Run closes it
	ServiceNames func() map[string]string // EDS service names by cluster, where they differ from the cluster name
	OnReport     func()                   // Run calls it after each report that it has sent
	Log          *slog.Logger

	perEndpoint bool          // report each endpoint
	interval    time.Duration // between reports; 0: none requested
}

// Keys of log lines.
const (
	logControl = "control_plane"
	logError   = "error"
)

const (
	// featureAllClusters is the feature of a client that understands send_all_clusters.
	featureAllClusters = "envoy.lrs.supports_send_all_clusters"
	// minReportInterval is the shortest interval between reports.
	minReportInterval = 100 * time.Millisecond
	// countingDelay is the maximum time from the end of a request until the request is counted as
	// ended.
	countingDelay = 20 * time.Millisecond
)

// Run reports load until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	defer r.Loads.Close()
	defer r.Dialer.Close()
	var backoff transport.Backoff
	for ctx.Err() == nil {
		started := time.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			break
		}
		r.Log.Warn("cannot report load: the next report will include the unreported load", logControl, r.Name, logError, err)
		backoff.ResetAfter(time.Since(started))
		select {
		case <-time.After(backoff.Next()):
		case <-ctx.Done():
		}
	}
}

// session opens a connection with one stream, and reports on the stream until it ends.
func (r *Reporter) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	conn, err := r.Dialer.Dial()
	if err != nil {
		cancel()
		return err
	}
	var receiver sync.WaitGroup
	defer func() {
		cancel()
		receiver.Wait()
		_ = conn.Close() // no call is in flight
	}()
	stream, err := lrsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err != nil {
		return err
	}
	node, _ := proto.Clone(r.Node).(*corev3.Node)
	node.ClientFeatures = append(node.ClientFeatures, featureAllClusters)
	if err := stream.Send(&lrsv3.LoadStatsRequest{Node: node}); err != nil {
		return err
	}
	responses, streamErr := make(chan *lrsv3.LoadStatsResponse), make(chan error, 1)
	receiver.Go(func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				streamErr <- err
				return
			}
			select {
			case responses <- m:
			case <-ctx.Done():
				return
			}
		}
	})
	return r.serveStream(ctx, stream, responses, streamErr)
}

// serveStream reports at the interval that the server requests until the stream ends.
func (r *Reporter) serveStream(ctx context.Context, stream lrsv3.LoadReportingService_StreamLoadStatsClient, responses <-chan *lrsv3.LoadStatsResponse, streamErr <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	r.interval = 0
	for {
		select {
		case resp := <-responses:
			previous := r.interval
			if err := r.applyResponse(resp); err != nil {
				return err
			}
			if r.interval != previous { // a repeated interval must not delay the report
				timer.Reset(r.interval)
			}
		case <-timer.C:
			if err := r.report(ctx, stream); err != nil {
				return streamError(err, responses, streamErr)
			}
			timer.Reset(r.interval)
		case err := <-streamErr:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// applyResponse applies the settings in a response.
func (r *Reporter) applyResponse(resp *lrsv3.LoadStatsResponse) error {
	interval := resp.GetLoadReportingInterval()
	if interval.CheckValid() != nil || interval.AsDuration() <= 0 {
		return fmt.Errorf("load_reporting_interval: %v is not a valid interval", interval)
	}
	r.Log.Info("reporting load", logControl, r.Name, "interval", interval.AsDuration().String(), "all_clusters", resp.GetSendAllClusters(), "clusters", len(resp.GetClusters()))
	r.interval, r.perEndpoint = max(interval.AsDuration(), minReportInterval), resp.GetReportEndpointGranularity()
	r.Loads.SetClusters(resp.GetSendAllClusters(), resp.GetClusters()...)
	return nil
}

// report sends the load since the last successful report.
func (r *Reporter) report(ctx context.Context, stream lrsv3.LoadReportingService_StreamLoadStatsClient) error {
	load := r.Loads.Collect(func() {
		select {
		case <-time.After(countingDelay):
		case <-ctx.Done():
		}
	})
	if err := stream.Send(&lrsv3.LoadStatsRequest{ClusterStats: clusterStats(load.Clusters, r.ServiceNames(), r.perEndpoint)}); err != nil {
		return err // the next stream reports this load
	}
	load.Commit()
	r.OnReport()
	return nil
}

// streamError is called after a send failed with err. It returns the reason why the stream ended.
func streamError(err error, responses <-chan *lrsv3.LoadStatsResponse, streamErr <-chan error) error {
	for errors.Is(err, io.EOF) { // io.EOF: the receiver has the reason
		select {
		case err = <-streamErr:
			return err
		case <-responses: // too late to apply
		}
	}
	return err
}
