package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/state"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// Status returns the status of all control planes. It waits while a configuration is being applied.
func (s *Source) Status() status.Status {
	s.stack.Lock()
	defer s.stack.Unlock()
	return status.Summarize(s.boot, s.state, s.statusChannels(), s.cache.Status())
}

// Dump returns the list "configs" of Envoy's ConfigDump, without secrets. It waits while a
// configuration is being applied. An error means that o is not valid.
func (s *Source) Dump(o status.DumpOptions) ([]json.RawMessage, error) {
	return s.statusSnapshot().Dump(o)
}

func (s *Source) statusSnapshot() *status.Snapshot {
	s.stack.Lock()
	defer s.stack.Unlock()
	return status.NewSnapshot(s.boot, s.state, s.statusChannels())
}

// statusChannels returns the channels with their connection status. The caller holds the lock of
// the stack.
func (s *Source) statusChannels() []status.Channel {
	channels := make([]status.Channel, 0, len(s.channels))
	for _, ch := range s.channels {
		ch.mu.Lock()
		connection := ch.status
		ch.mu.Unlock()
		channels = append(channels, status.Channel{
			Name: ch.name, Source: ch.secretSource, Mode: ch.mode, Client: ch.client, History: &ch.history, Connection: connection,
		})
	}
	return channels
}

// startStatusServer serves CSDS until ctx ends, on a goroutine of group. The goroutine calls
// onError if the socket fails. An error means that the address cannot be bound.
func (s *Source) startStatusServer(ctx context.Context, group *sync.WaitGroup, onError func(error)) error {
	address := s.opts.Bootstrap.CSDSAddress
	if address == "" {
		return nil
	}
	ln, err := status.Listen(ctx, address)
	if err != nil {
		return fmt.Errorf("xds_status: %w", err)
	}
	group.Go(func() {
		if err := status.Serve(ctx, ln, s.boot.Node, s.statusSnapshot); err != nil {
			onError(err)
		}
	})
	return nil
}

// RuntimeLayers returns the layers of the runtime; later layers override earlier ones. The caller
// must not change them. RuntimeLayers waits while a configuration is being applied.
func (s *Source) RuntimeLayers() []bootstrap.RuntimeLayer {
	s.stack.Lock()
	defer s.stack.Unlock()
	return s.state.RuntimeLayers()
}

// InitTargets returns the listeners that are not active in their last version, with what they wait
// for. Until Ready, it returns all listeners. It waits while a configuration is being applied.
func (s *Source) InitTargets() []state.InitTargets {
	s.stack.Lock()
	defer s.stack.Unlock()
	return s.state.InitTargets(!s.ready.Load() && !s.isReady())
}

// Certificates returns the certificates of the connections to control planes.
func (s *Source) Certificates() []credential.Certificates { return s.reloader.Certificates() }

// StaticClusters returns the names of the clusters in static_resources of the active file, in the
// order of the file. It does not wait for a configuration that is being applied.
func (s *Source) StaticClusters() []string {
	static := s.activeStatic.Load()
	names := make([]string, len(static.Clusters))
	for i := range static.Clusters {
		names[i] = static.Clusters[i].Name
	}
	return names
}
