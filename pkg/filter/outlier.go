package filter

import "github.com/weft-proxy/weft/pkg/config"

// OutlierPolicy is implemented by the configuration of a filter that configures outlier detection.
// The config reader calls it once; the clusters of the listener's routes apply the result.
type OutlierPolicy interface {
	// Outlier returns the outlier detection settings, nil if this filter configures none.
	Outlier() *config.OutlierDetection
}
