package protocol

import "iter"

// LogType is the event for which an access log writes a line.
type LogType uint8

// The events. Weft writes lines for the end of exchanges and connections.
const (
	LogTypeNotSet LogType = iota
	LogTCPUpstreamConnected
	LogTCPPeriodic
	LogTCPConnectionEnd
	LogDownstreamStart
	LogDownstreamPeriodic
	LogDownstreamEnd
	LogUpstreamPoolReady
	LogUpstreamPeriodic
	LogUpstreamEnd
	LogDownstreamTunnelEstablished
	LogUDPTunnelUpstreamConnected
	LogUDPPeriodic
	LogUDPSessionEnd

	logTypeCount
)

//nolint:gochecknoglobals // a constant table
var logTypeNames = [logTypeCount]string{
	LogTypeNotSet:                  "NotSet",
	LogTCPUpstreamConnected:        "TcpUpstreamConnected",
	LogTCPPeriodic:                 "TcpPeriodic",
	LogTCPConnectionEnd:            "TcpConnectionEnd",
	LogDownstreamStart:             "DownstreamStart",
	LogDownstreamPeriodic:          "DownstreamPeriodic",
	LogDownstreamEnd:               "DownstreamEnd",
	LogUpstreamPoolReady:           "UpstreamPoolReady",
	LogUpstreamPeriodic:            "UpstreamPeriodic",
	LogUpstreamEnd:                 "UpstreamEnd",
	LogDownstreamTunnelEstablished: "DownstreamTunnelSuccessfullyEstablished",
	LogUDPTunnelUpstreamConnected:  "UdpTunnelUpstreamConnected",
	LogUDPPeriodic:                 "UdpPeriodic",
	LogUDPSessionEnd:               "UdpSessionEnd",
}

// String returns Envoy's name of t.
func (t LogType) String() string { return logTypeNames[t] }

// LogTypes yields all types.
func LogTypes() iter.Seq[LogType] {
	return func(yield func(LogType) bool) {
		for t := range logTypeCount {
			if !yield(t) {
				return
			}
		}
	}
}
