package metrics

// LabelDirection is a label key: which way datagrams went.
const LabelDirection = "direction"

// Values of LabelDirection.
const (
	DirectionIn  = "in"  // from callers to hosts
	DirectionOut = "out" // from hosts to callers
)

// Metrics of listeners of datagrams, used with Registry.Func.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// UDPSessions is how many sessions there are.
	UDPSessions = Metric{"weft_udp_sessions_active", "Sessions of the listener of datagrams that are open: each is all between one source and its host.",
		KindGauge, []string{LabelListener}}
	// UDPSessionsOpened counts sessions that began.
	UDPSessionsOpened = Metric{"weft_udp_sessions_total", "Sessions that began.",
		KindCounter, []string{LabelListener}}
	// UDPSessionsMoved counts changes of a session's host.
	UDPSessionsMoved = Metric{"weft_udp_sessions_moved_total", "Sessions that went on with another host, because theirs was gone, unhealthy or refused a datagram.",
		KindCounter, []string{LabelListener}}
	// UDPDatagrams counts datagrams that were passed on.
	UDPDatagrams = Metric{"weft_udp_datagrams_total", "Datagrams that were passed on, by direction.",
		KindCounter, []string{LabelListener, LabelDirection}}
	// UDPBytes counts their content.
	UDPBytes = Metric{"weft_udp_bytes_total", "Content of the datagrams that were passed on, by direction.",
		KindCounter, []string{LabelListener, LabelDirection}}
	// UDPDropped counts datagrams that were not. Its LabelReason is one of the drops
	// here.
	UDPDropped = Metric{"weft_udp_datagrams_dropped_total", "Datagrams that were not passed on, by why.",
		KindCounter, []string{LabelListener, LabelReason}}
)

// Values of LabelReason of UDPDropped.
const (
	DropMaxSessions = "max_sessions"    // a source without a session, and no room for one
	DropNoHost      = "no_host"         // no host could be given a session
	DropDraining    = "draining"        // a source without a session, while the listener drains
	DropToHost      = "send_failed"     // the kernel did not take it on its way to the host
	DropToCaller    = "response_failed" // or back
)

func udpMetrics() []Metric {
	return []Metric{UDPSessions, UDPSessionsOpened, UDPSessionsMoved, UDPDatagrams, UDPBytes, UDPDropped}
}
