package config

import "time"

// OnDemand describes a resource that Weft requests from the control plane on first use and drops
// when it is unused. The zero value describes a resource that is always subscribed.
type OnDemand struct {
	Wait         time.Duration // maximum time that a request waits for the resource; 0: it is not on demand
	Unsubscribed bool          // Weft is not subscribed to the resource, which is therefore empty
}

// Enabled reports whether the resource is on demand.
func (o OnDemand) Enabled() bool { return o.Wait > 0 }

// XDSOnDemand configures on-demand subscriptions. The zero value disables them: Weft subscribes to
// every resource that the configuration refers to.
type XDSOnDemand struct {
	Idle   time.Duration // an unused resource is unsubscribed after this time; 0: nothing is on demand
	Wait   time.Duration // maximum time that each request waits for a resource
	Routes bool          // route tables are on demand in addition to hosts
}
