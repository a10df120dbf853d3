package config

// HostHealth is what a discovery that looks after hosts says of one. It counts beside what
// is found out about the host here: nothing of that brings back a host that is said to be
// down.
type HostHealth uint8

// What may be said.
const (
	HostFit     HostHealth = iota // nothing against it
	HostUnfit                     // it is down: it is used as one that fails its checks is, in panic only
	HostLeaving                   // it is down, and never gets anything new: it ends what it has
)

// String names it for people.
func (h HostHealth) String() string {
	switch h {
	case HostUnfit:
		return "unfit"
	case HostLeaving:
		return "leaving"
	case HostFit:
	}
	return "fit"
}
