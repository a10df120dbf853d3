package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type xdsLazyJSON struct {
	Node   document.Node `key:"."`
	Idle   time.Duration `key:"idle" doc:"Idle time after which an unused resource is unsubscribed; more than 0. Weft adds up to half of it at random." default:"10m" example:"\"1h\""`
	Wait   time.Duration `key:"wait" doc:"Maximum time that a request waits for a resource, more than 0 and at most idle; then it gets 503." default:"5s" example:"\"2s\""`
	Routes bool          `key:"routes" doc:"Also subscribe to routes on demand. false: hosts only." default:"true" example:"false"`
}

func (r *reader) readXDSOnDemand(j *rootJSON) {
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
		r.snapshot.Bootstrap.OnDemand = config.XDSOnDemand{Idle: l.Idle, Wait: l.Wait, Routes: l.Routes}
	}
}
