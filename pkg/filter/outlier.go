package filter

import "github.com/weft-proxy/weft/pkg/config"

// OutlierPolicy is implemented by the configuration of a filter that configures outlier detection.
// When the file is read, the clusters that the routes of the filter's listener name get the result,
// unless they have settings of their own.
type OutlierPolicy interface {
	// Outlier returns the outlier detection settings, nil if this filter configures none.
	Outlier() *config.OutlierDetection
}
