package config

import "time"

// OnDemand is of what a control plane is asked for when it is used, and which is dropped
// when it is not. The zero value is of what is there whether it is used or not.
type OnDemand struct {
	Wait   time.Duration // how long an exchange waits for it at most; 0: it is not on demand
	Asleep bool          // it is not there: what has its place is empty
}

// Applies reports whether it is on demand.
func (o OnDemand) Applies() bool { return o.Wait > 0 }

// ControlPlaneLazy is what is left with the control plane until it is used. The zero value
// leaves nothing there: all is asked for that something refers to.
type ControlPlaneLazy struct {
	Idle   time.Duration // after its last use something is dropped; 0: nothing is left there
	Wait   time.Duration // for what has been asked for, of each exchange
	Routes bool          // routes are left there, too, not only hosts
}
