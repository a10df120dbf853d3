package filter

import "github.com/weft-proxy/weft/internal/metrics"

// LabelPrefix is the label for the name that a configuration gives its filter: stat_prefix.
const LabelPrefix = "stat_prefix"

// Counter describes a counter of the filter called name, with the labels stat_prefix and labels:
// weft_filter_NAME_UNIT_total.
func Counter(name, unit, help string, labels ...string) metrics.Metric {
	return metrics.Metric{
		Name: "weft_filter_" + name + "_" + unit + "_total", Help: help, Kind: metrics.KindCounter,
		Labels: append([]string{LabelPrefix}, labels...),
	}
}

// Gauge describes a gauge of the filter called name, with the labels stat_prefix and labels:
// weft_filter_NAME_QUANTITY.
func Gauge(name, quantity, help string, labels ...string) metrics.Metric {
	return metrics.Metric{
		Name: "weft_filter_" + name + "_" + quantity, Help: help, Kind: metrics.KindGauge,
		Labels: append([]string{LabelPrefix}, labels...),
	}
}
