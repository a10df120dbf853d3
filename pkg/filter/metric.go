package filter

import "github.com/weft-proxy/weft/internal/metrics"

// LabelPrefix is the metric label whose value is the stat_prefix of the filter's configuration.
const LabelPrefix = "stat_prefix"

// Counter describes the counter weft_filter_NAME_UNIT_total of the filter called name. Its labels
// are stat_prefix and labels.
func Counter(name, unit, help string, labels ...string) metrics.Metric {
	return metrics.Metric{
		Name: "weft_filter_" + name + "_" + unit + "_total", Help: help, Kind: metrics.KindCounter,
		Labels: append([]string{LabelPrefix}, labels...),
	}
}

// Gauge describes the gauge weft_filter_NAME_QUANTITY of the filter called name. Its labels are
// stat_prefix and labels.
func Gauge(name, quantity, help string, labels ...string) metrics.Metric {
	return metrics.Metric{
		Name: "weft_filter_" + name + "_" + quantity, Help: help, Kind: metrics.KindGauge,
		Labels: append([]string{LabelPrefix}, labels...),
	}
}
