package metrics

// LabelDirection is the label key for the direction of datagrams.
const LabelDirection = "direction"

// Values of LabelDirection.
const (
	DirectionIn  = "in"  // from clients to hosts
	DirectionOut = "out" // from hosts to clients
)

// Metrics of UDP listeners, used with Registry.Func.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// UDPSessions is the number of open sessions.
	UDPSessions = Metric{"weft_udp_sessions_active", "Sessions of the listener of datagrams that are open: each is all between one source and its host.",
		KindGauge, []string{LabelListener}}
	// UDPSessionsOpened counts started sessions.
	UDPSessionsOpened = Metric{"weft_udp_sessions_total", "Sessions that began.",
		KindCounter, []string{LabelListener}}
	// UDPSessionsMoved counts changes of a session's host.
	UDPSessionsMoved = Metric{"weft_udp_sessions_moved_total", "Sessions that went on with another host, because theirs was gone, unhealthy or refused a datagram.",
		KindCounter, []string{LabelListener}}
	// UDPDatagrams counts forwarded datagrams.
	UDPDatagrams = Metric{"weft_udp_datagrams_total", "Datagrams that were passed on, by direction.",
		KindCounter, []string{LabelListener, LabelDirection}}
	// UDPBytes counts the payload bytes of forwarded datagrams.
	UDPBytes = Metric{"weft_udp_bytes_total", "Content of the datagrams that were passed on, by direction.",
		KindCounter, []string{LabelListener, LabelDirection}}
	// UDPDropped counts dropped datagrams. Its LabelReason is one of the Drop constants.
	UDPDropped = Metric{"weft_udp_datagrams_dropped_total", "Datagrams that were not passed on, by why.",
		KindCounter, []string{LabelListener, LabelReason}}
)

// Values of LabelReason of UDPDropped.
const (
	DropMaxSessions = "max_sessions"    // the source has no session, and max_sessions is reached
	DropNoHost      = "no_host"         // no host was available for a new session
	DropDraining    = "draining"        // the source has no session, and the listener drains
	DropToHost      = "send_failed"     // the send to the host failed
	DropToCaller    = "response_failed" // the send to the client failed
)

func udpMetrics() []Metric {
	return []Metric{UDPSessions, UDPSessionsOpened, UDPSessionsMoved, UDPDatagrams, UDPBytes, UDPDropped}
}
