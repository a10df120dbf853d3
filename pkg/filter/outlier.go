package filter

import "github.com/weft-proxy/weft/pkg/config"

// OutlierPolicy is implemented by the configuration of a filter that has hosts ejected. The
// config reader calls it once; the clusters that the listener's routes lead to apply the result.
type OutlierPolicy interface {
	// Outlier returns the outlier detection settings, nil if this filter detects none.
	Outlier() *config.OutlierDetection
}
