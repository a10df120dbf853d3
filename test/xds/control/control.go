// Package control is a control plane that serves the resources of a file over ADS, in the
// state-of-the-world and the delta variant. It serves the new resources when the file changes.
package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"                     // a message type in the files
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3" // a message type in the files
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// singleNodeID is the snapshot key of all nodes, which get the same resources.
const singleNodeID = "all"

// singleNodeHash is a cache.NodeHash that does not distinguish nodes.
type singleNodeHash struct{}

// ID implements cache.NodeHash.
func (singleNodeHash) ID(*corev3.Node) string { return singleNodeID }

// Serve serves the file to all clients of ln until ctx ends; all nodes get the same resources. It
// returns an error if the file is invalid at the start. Later errors are logged, and the previous
// resources remain.
func Serve(ctx context.Context, ln net.Listener, path string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	c := cache.NewSnapshotCache(true, singleNodeHash{}, nil)
	version, err := load(ctx, c, path, "")
	if err != nil {
		cancel()
		return err
	}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, c, nil))
	var tasks sync.WaitGroup
	tasks.Go(func() {
		<-ctx.Done()
		s.Stop()
	})
	tasks.Go(func() { serveChanges(ctx, c, path, version, log) })
	defer tasks.Wait()
	defer cancel()
	return s.Serve(ln)
}

// serveChanges loads the file again when it changes, until ctx ends.
func serveChanges(ctx context.Context, c cache.SnapshotCache, path, version string, log *slog.Logger) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		next, err := load(ctx, c, path, version)
		if err != nil {
			log.Error("cannot load the resource file, the previous resources stay active", "error", err)
			continue
		}
		if next != version {
			log.Info("the resources have changed", "version", next)
			version = next
		}
	}
}

// resourceFile is the content of a resource file, each resource in protobuf JSON.
type resourceFile struct {
	Clusters  []json.RawMessage `json:"clusters"`
	Endpoints []json.RawMessage `json:"endpoints"`
	Listeners []json.RawMessage `json:"listeners"`
	Routes    []json.RawMessage `json:"routes"`
}

// load serves the content of the file, unless it is the given version. It returns the version.
func load(ctx context.Context, c cache.SnapshotCache, path, version string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return version, err
	}
	sum := sha256.Sum256(data)
	next := hex.EncodeToString(sum[:4])
	if next == version {
		return version, nil
	}
	var f resourceFile
	if err := json.Unmarshal(data, &f); err != nil {
		return version, fmt.Errorf("%s: %w", path, err)
	}
	resources := map[resource.Type][]types.Resource{}
	err = errors.Join(
		parseResources(resources, resource.ClusterType, f.Clusters, func() proto.Message { return &clusterv3.Cluster{} }),
		parseResources(resources, resource.EndpointType, f.Endpoints, func() proto.Message { return &endpointv3.ClusterLoadAssignment{} }),
		parseResources(resources, resource.ListenerType, f.Listeners, func() proto.Message { return &listenerv3.Listener{} }),
		parseResources(resources, resource.RouteType, f.Routes, func() proto.Message { return &routev3.RouteConfiguration{} }),
	)
	if err != nil {
		return version, fmt.Errorf("%s: %w", path, err)
	}
	snapshot, err := cache.NewSnapshot(next, resources)
	if err != nil {
		return version, err
	}
	return next, c.SetSnapshot(ctx, singleNodeID, snapshot)
}

func parseResources(out map[resource.Type][]types.Resource, typeURL resource.Type, list []json.RawMessage, newMessage func() proto.Message) error {
	for i, raw := range list {
		m := newMessage()
		if err := protojson.Unmarshal(raw, m); err != nil {
			return fmt.Errorf("%s %d: %w", typeURL, i, err)
		}
		out[typeURL] = append(out[typeURL], m)
	}
	return nil
}
