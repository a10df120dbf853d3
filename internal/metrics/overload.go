package metrics

// Label keys of the overload manager.
const (
	LabelMonitor = "monitor" // what is watched
	LabelAction  = "action"  // what is done about it
)

// Metrics of the overload manager; there are none unless one is configured.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// OverloadPressure is how much of something is used.
	OverloadPressure = Metric{"weft_overload_pressure", "What is used of what the monitor watches, as a share of what there is.",
		KindGauge, []string{LabelMonitor}}
	// OverloadFailures counts reads of a monitor that failed.
	OverloadFailures = Metric{"weft_overload_monitor_failures_total", "Times that a monitor could not be read; its pressure stayed as it was.",
		KindCounter, []string{LabelMonitor}}
	// OverloadValue is how far an action goes.
	OverloadValue = Metric{"weft_overload_action_value", "How far the action goes: 0 for nothing, 1 for all that it can.",
		KindGauge, []string{LabelAction}}
	// OverloadDone counts what actions have done.
	OverloadDone = Metric{"weft_overload_action_done_total", "What the action has done: requests refused, answers that ended their connection, connections ended or closed at once, times that accepting stopped or memory was given back.",
		KindCounter, []string{LabelAction}}
)

func overloadMetrics() []Metric {
	return []Metric{OverloadPressure, OverloadFailures, OverloadValue, OverloadDone}
}
