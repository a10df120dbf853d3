package configjson

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type xdsCacheJSON struct {
	Node   document.Node `key:"."`
	Path   string        `key:"path" doc:"Directory that only this Weft process uses. Only its owner can read it. Weft does not cache secrets or resources that contain a private key." required:"true" example:"\"/var/lib/weft/xds\""`
	MaxAge time.Duration `key:"max_age" doc:"Maximum age of cached resources; older ones are not used. 0: no limit." default:"0s" example:"\"24h\""`
}

type xdsStatusJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"Loopback ip:port, or the path of a unix socket. Clients that can connect to it can read the configuration without the secrets." required:"true" example:"\"127.0.0.1:34902\""`
}

type xdsLazyJSON struct {
	Node   document.Node `key:"."`
	Idle   time.Duration `key:"idle" doc:"Time after which Weft unsubscribes from an unused resource; more than 0. Weft may unsubscribe up to half of this time later." default:"10m" example:"\"1h\""`
	Wait   time.Duration `key:"wait" doc:"Maximum time that a request waits for a resource, more than 0 and at most idle; then it gets 503." default:"5s" example:"\"2s\""`
	Routes bool          `key:"routes" doc:"Also subscribe to routes on demand. false: hosts only." default:"true" example:"false"`
}

// xdsReader reads the keys for control planes.
type xdsReader struct {
	*input
	out config.Bootstrap
}

// read copies the control plane configuration of the file as JSON, which package xds parses.
func (r *xdsReader) read(j *rootJSON) config.Bootstrap {
	for _, n := range []document.Node{j.DynamicResources, j.StaticResources, j.LayeredRuntime, j.EnvoyNode} {
		if hasMembers(n) && !r.capabilities.XDS {
			r.report.Unsupported(n, n.Key())
			return r.out
		}
	}
	markSecrets(j.DynamicResources)
	markSecrets(j.StaticResources)
	markSecrets(j.ClusterManager.LoadStats)
	r.out = config.Bootstrap{
		Node: rawJSON(j.EnvoyNode), StaticResources: rawJSON(j.StaticResources), DynamicResources: dynamicJSON(j.DynamicResources), LayeredRuntime: rawJSON(j.LayeredRuntime),
	}
	r.readCache(j)
	r.readOnDemand(j)
	if j.XDSUnknown == "warn" {
		r.out.UnknownFields = config.WarnUnknownFields
	}
	r.readStatus(j)
	r.readLoadStats(j)
	if n := j.LayeredRuntime; hasMembers(n) && !j.hasBootstrap() {
		r.report.Warnf(n, "layered_runtime has no effect without dynamic_resources or static_resources")
	}
	return r.out
}

// hasMembers reports whether an object has members, even empty ones: in a protobuf message such as
// {"ads": {}}, their presence is significant.
func hasMembers(n document.Node) bool { return n.Len() > 0 }

// rawJSON returns an object as JSON, or nil if it has no members.
func rawJSON(n document.Node) []byte {
	if !hasMembers(n) {
		return nil
	}
	return marshalJSON(n.Value())
}

// marshalJSON returns the value of a node as JSON.
func marshalJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("configjson: the document is not valid JSON: " + err.Error())
	}
	return text
}

// dynamicJSON returns dynamic_resources as JSON, or nil if it has no members. MOSN writes
// ads_config.refresh_delay as {"seconds": 20}; dynamicJSON returns it as "20s", the JSON form of a
// duration. Package xds reports an object with other members.
func dynamicJSON(n document.Node) []byte {
	delay, isObject := mosnDuration(n.Get("ads_config", "adsConfig").Get("refresh_delay", "refreshDelay"))
	if !isObject {
		return rawJSON(n)
	}
	object, _ := n.Value().(map[string]any)
	for _, name := range []string{"ads_config", "adsConfig"} {
		ads, _ := object[name].(map[string]any)
		for _, key := range []string{"refresh_delay", "refreshDelay"} {
			if _, exists := ads[key].(map[string]any); exists {
				ads[key] = delay
			}
		}
	}
	return marshalJSON(object)
}

// mosnDuration returns the text of a duration that is an object of seconds and nanos.
func mosnDuration(n document.Node) (text string, ok bool) {
	if n.Kind() != document.Object {
		return "", false
	}
	var seconds, nanos int64
	for member := range n.All() {
		value, isInteger := member.Value().(int64)
		switch {
		case isInteger && member.Key() == "seconds" && value >= 0:
			seconds = value
		case isInteger && member.Key() == "nanos" && value >= 0 && value < int64(time.Second):
			nanos = value
		default:
			return "", false
		}
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%09d", seconds, nanos), "0"), ".") + "s", true
}

func (r *xdsReader) readCache(j *rootJSON) {
	c := j.XDSCache
	switch {
	case c == nil:
	case !r.capabilities.XDS:
		r.report.Unsupported(c.Node, "xds_cache")
	case !hasMembers(j.DynamicResources):
		r.report.Warnf(c.Node, "xds_cache has no effect without dynamic_resources")
	default:
		r.out.Cache = config.XDSCache{Path: c.Path, MaxAge: c.MaxAge}
	}
}

func (r *xdsReader) readStatus(j *rootJSON) {
	s := j.XDSStatus
	switch {
	case s == nil:
	case !r.capabilities.XDS:
		r.report.Unsupported(s.Node, "xds_status")
	case !j.hasBootstrap():
		r.report.Warnf(s.Node, "xds_status has no effect without dynamic_resources or static_resources")
	default:
		address, isSocket, err := unixaddr.Parse(s.Address)
		if err != nil {
			r.report.Errorf(s.Node.Get("address").Or(s.Node), "%v", err)
			return
		}
		if !isSocket || unixaddr.IsAbstract(address) { // any process may connect to an abstract socket
			address = numericHost(address)
			if addrPort, err := netip.ParseAddrPort(address); err != nil || addrPort.Port() == 0 || !addrPort.Addr().Unmap().IsLoopback() {
				r.report.Errorf(s.Node.Get("address").Or(s.Node), "found %q, expected ip:port of a loopback address, or the path of a unix socket", s.Address)
			}
		}
		r.out.CSDSAddress = address
	}
}

func (r *xdsReader) readLoadStats(j *rootJSON) {
	n := j.ClusterManager.LoadStats
	switch {
	case !hasMembers(n):
	case !r.capabilities.XDS:
		r.report.Unsupported(n, "load_stats_config")
	case !j.hasBootstrap():
		r.report.Warnf(n, "load_stats_config has no effect without dynamic_resources or static_resources")
	default:
		r.out.LoadStats = rawJSON(n)
	}
}

func (r *xdsReader) readOnDemand(j *rootJSON) {
	l := j.XDSLazy
	switch {
	case l == nil:
	case !r.capabilities.XDS:
		r.report.Unsupported(l.Node, "xds_lazy")
	case !hasMembers(j.DynamicResources):
		r.report.Warnf(l.Node, "xds_lazy has no effect without dynamic_resources")
	default:
		if l.Idle <= 0 {
			r.report.Errorf(l.Node.Get("idle").Or(l.Node), "found %v, expected more than 0", l.Idle)
		}
		if l.Wait <= 0 || l.Wait > l.Idle {
			r.report.Errorf(l.Node.Get("wait").Or(l.Node), "found %v, expected more than 0 and at most idle (%v)", l.Wait, l.Idle)
		}
		r.out.OnDemand = config.XDSOnDemand{Idle: l.Idle, Wait: l.Wait, Routes: l.Routes}
	}
}
