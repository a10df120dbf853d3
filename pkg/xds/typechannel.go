package xds

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Clusters and listeners may come from sources of their own instead of ADS: from the discovery
// service of their type, or from a file. Such a channel has a client of the xDS protocol, too: each
// version of a file is a response of the state-of-the-world protocol.

// addTypeChannel adds the channel of a source that is not ADS.
func (s *Source) addTypeChannel(source *bootstrap.TypeSource) {
	ch := &channel{name: source.Cluster, onlyType: source.Type, mode: source.Mode, service: clusterService()}
	if source.Type == resource.ListenerType {
		ch.service = listenerService()
	}
	if source.Path != "" {
		ch.name, ch.path = source.Path, source.Path
	}
	s.newChannel(ch, resourceTypes()...)
}

// channelOf returns the channel that serves all resources of a type, or else the ADS channel. nil:
// there is neither.
func (s *Source) channelOf(url string) *channel {
	for _, ch := range s.channels {
		if ch.onlyType == url {
			return ch
		}
	}
	return s.mainChannel()
}

// filePollInterval is the interval between two checks of a file.
const filePollInterval = 500 * time.Millisecond

// watchFile delivers the content of the file, and again after each change, until ctx ends. It reads
// a changed file only after an interval without a further change, because a program may still write
// it. A version of the file that cannot be read changes nothing.
func (c *channel) watchFile(ctx context.Context) {
	if !c.deliver(ctx, event{opened: true}) {
		return
	}
	ticker := time.NewTicker(filePollInterval)
	defer ticker.Stop()
	var loaded, previous fileVersion
	for first := true; ; first = false {
		current := versionOf(c.path)
		if current != loaded && (first || current == previous) {
			loaded = current
			c.deliverFile(ctx)
		}
		previous = current
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// fileVersion identifies a version of a file. The zero value stands for a missing file.
type fileVersion struct {
	modified time.Time
	size     int64
	inode    uint64
}

// versionOf returns the version of a file.
func versionOf(path string) (v fileVersion) {
	if info, err := os.Stat(path); err == nil {
		v.modified, v.size = info.ModTime(), info.Size()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			v.inode = stat.Ino
		}
	}
	return v
}

// deliverFile reads the file and delivers its resources.
func (c *channel) deliverFile(ctx context.Context) {
	r, err := c.readFile()
	if err != nil {
		c.setFailed(err)
		c.log.Warn("cannot read resources: the last accepted ones stay active", logPath, c.path, logError, err)
		return
	}
	c.setConnected()
	c.deliver(ctx, event{response: &r})
	c.mu.Lock()
	c.queue = nil // acknowledgments have no receiver
	c.mu.Unlock()
}

// readFile reads the file as a response.
func (c *channel) readFile() (ads.Response, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return ads.Response{}, err
	}
	message, _, diagnostics := parseFile(c.path, text)
	if diagnostics.Failed() {
		return ads.Response{}, diagnostics.Err()
	}
	message.TypeUrl = c.onlyType
	return responseOf(message, resource.Name), nil
}
