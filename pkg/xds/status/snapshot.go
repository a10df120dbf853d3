package status

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// Snapshot is a copy of what a client has received, and of its status. It is immutable.
type Snapshot struct {
	boot    *bootstrap.Bootstrap
	static  *bootstrap.StaticResources
	types   map[string][]*typeSnapshot // by type; secrets: one for each channel, other types: at most one
	ignored map[state.ResourceKey][]string
	warming map[string]map[string]bool // resources that are not active yet, by type and name
}

// typeSnapshot has the resources of one type from one channel.
type typeSnapshot struct {
	source   resource.SecretSource // source of the secrets of the channel; zero: the ADS channel
	version  string
	accepted map[string]ads.Resource
	history  map[string]resourceHistory // history of the accepted and the rejected resources, by name
	// doesNotExist has an entry for each name that is subscribed. The value is true if the control
	// plane has reported that the resource does not exist. nil: all resources are subscribed.
	doesNotExist map[string]bool
}

// NewSnapshot copies the state of a client.
func NewSnapshot(boot *bootstrap.Bootstrap, st *state.State, channels []Channel) *Snapshot {
	s := &Snapshot{
		boot: boot, static: st.Static(), types: map[string][]*typeSnapshot{}, ignored: st.Ignored(),
		warming: map[string]map[string]bool{resource.ClusterType: {}, resource.ListenerType: {}},
	}
	for i := range channels {
		for _, url := range channels[i].types() {
			s.types[url] = append(s.types[url], newTypeSnapshot(&channels[i], url))
		}
	}
	for _, w := range st.Warming() {
		s.warming[w.Type][w.Name] = true
	}
	return s
}

func newTypeSnapshot(c *Channel, url string) *typeSnapshot {
	v := &typeSnapshot{source: c.Source, accepted: maps.Clone(c.Client.Resources(url))}
	v.version, _ = c.Client.Version(url)
	v.history = c.History.copyOf(url, v.accepted)
	if wildcard, names := c.Client.Subscription(url); !wildcard {
		v.doesNotExist = make(map[string]bool, len(names))
		for _, name := range names {
			v.doesNotExist[name] = c.Client.DoesNotExist(url, name)
		}
	}
	return v
}

// body returns the serialized version of a resource that is in use; ok is false if there is none.
func (v *typeSnapshot) body(name string) (body []byte, ok bool) {
	if res, ok := v.accepted[name]; ok {
		return res.Body, true
	}
	if last := v.history[name].removed; last != nil {
		return last.Body, true
	}
	return nil, false
}

// channelResource is a resource that one channel received or subscribed to by name.
type channelResource struct {
	*typeSnapshot

	name string
}

// received returns the resources of a type that were accepted or rejected, sorted by name.
func (s *Snapshot) received(url string) (out []channelResource) {
	for _, v := range s.types[url] {
		for name := range v.history {
			out = append(out, channelResource{v, name})
		}
	}
	slices.SortFunc(out, compareResources)
	return out
}

// subscribed returns the resources of a type that are subscribed by name, or for a wildcard type
// the received ones, sorted by name.
func (s *Snapshot) subscribed(url string) (out []channelResource) {
	for _, v := range s.types[url] {
		for name := range v.doesNotExist {
			out = append(out, channelResource{v, name})
		}
		if v.doesNotExist == nil {
			for name := range v.history {
				out = append(out, channelResource{v, name})
			}
		}
	}
	slices.SortFunc(out, compareResources)
	return out
}

func compareResources(a, b channelResource) int {
	return cmp.Or(cmp.Compare(a.name, b.name), a.source.Compare(b.source))
}

// version returns the version of the last response of a type that was accepted as a whole; "":
// none.
func (s *Snapshot) version(url string) string {
	for _, v := range s.types[url] {
		return v.version
	}
	return ""
}

// ignoredFields returns the fields of a resource that have no effect.
func (s *Snapshot) ignoredFields(url string, r channelResource) []string {
	return s.ignored[state.ResourceKey{Type: url, Name: r.name, Source: r.source}]
}
