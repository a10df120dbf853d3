package inspect

import (
	"errors"
	"net/url"

	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/proxy/explain"
)

// Explain returns where a request would go with the active configuration of s and the current state
// of its clusters. It returns an error if the query is invalid or no configuration is active.
func Explain(s *proxy.Server, query url.Values) (*explain.Result, error) {
	q, err := explain.Parse(query)
	if err != nil {
		return nil, err
	}
	running := s.Running()
	if running == nil {
		return nil, errors.New("no configuration is active yet")
	}
	return explain.Explain(running, func(name string) *explain.Upstream { return liveUpstream(s, name) }, q), nil
}

// liveUpstream returns the running state of a cluster, or nil if it does not exist.
func liveUpstream(s *proxy.Server, name string) *explain.Upstream {
	c := s.Clusters().Find(name)
	if c == nil || c.Config() == nil {
		return nil
	}
	u := &explain.Upstream{Config: c.Config()}
	status, _ := s.Clusters().DescribeOne(name)
	u.Panic = status.Panic
	for i := range status.Hosts {
		h := &status.Hosts[i]
		u.Hosts = append(u.Hosts, explain.UpstreamHost{
			Address: h.Address, DownReason: h.DownReasons.String(), Weight: h.Weight, Priority: h.Priority, Locality: h.Locality, Metadata: h.Metadata,
		})
	}
	return u
}
