package config

// HostHealth is the health that discovery reports for a host. It applies in addition to the health
// checks of Weft, which cannot recover a host that discovery reports as down.
type HostHealth uint8

// The reported states.
const (
	HostHealthy   HostHealth = iota
	HostUnhealthy            // used like a host that fails its checks: in panic mode only
	HostDraining             // gets no new requests and finishes its current ones
)

// String returns the name of the state in logs.
func (h HostHealth) String() string {
	switch h {
	case HostUnhealthy:
		return "unhealthy"
	case HostDraining:
		return "draining"
	case HostHealthy:
	}
	return "healthy"
}
