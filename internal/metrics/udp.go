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
	UDPSessions = Metric{"weft_udp_sessions_active", "Open UDP sessions of the listener. A session consists of the datagrams between one source address and its host.",
		KindGauge, []string{LabelListener}}
	// UDPSessionsOpened counts started sessions.
	UDPSessionsOpened = Metric{"weft_udp_sessions_total", "UDP sessions that were started.",
		KindCounter, []string{LabelListener}}
	// UDPSessionsMoved counts changes of a session's host.
	UDPSessionsMoved = Metric{"weft_udp_sessions_moved_total", "UDP sessions that moved to another host because their host was removed, became unhealthy or rejected a datagram, or because the cluster of the listener changed.",
		KindCounter, []string{LabelListener}}
	// UDPDatagrams counts forwarded datagrams.
	UDPDatagrams = Metric{"weft_udp_datagrams_total", "Datagrams that were forwarded, by direction.",
		KindCounter, []string{LabelListener, LabelDirection}}
	// UDPBytes counts the payload bytes of forwarded datagrams.
	UDPBytes = Metric{"weft_udp_bytes_total", "Payload bytes of forwarded datagrams, by direction.",
		KindCounter, []string{LabelListener, LabelDirection}}
	// UDPDropped counts dropped datagrams. Its LabelReason is one of the Drop constants.
	UDPDropped = Metric{"weft_udp_datagrams_dropped_total", "Datagrams that were dropped, by reason.",
		KindCounter, []string{LabelListener, LabelReason}}
)

// Values of LabelReason of UDPDropped.
const (
	DropMaxSessions = "max_sessions"    // the source has no session, and max_sessions is reached
	DropNoHost      = "no_host"         // no host was available for a new session
	DropDraining    = "draining"        // the source has no session, and the listener drains
	DropToHost      = "send_failed"     // the send to the host failed
	DropToClient    = "response_failed" // the send to the client failed
)

func udpMetrics() []Metric {
	return []Metric{UDPSessions, UDPSessionsOpened, UDPSessionsMoved, UDPDatagrams, UDPBytes, UDPDropped}
}
