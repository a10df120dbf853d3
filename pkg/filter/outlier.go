package filter

import "github.com/weft-proxy/weft/pkg/config"

// OutlierPolicy is implemented by the configuration of a filter that configures outlier detection.
// When the file is read, the result applies to the clusters of the routes of the filter's listener.
// A cluster with outlier detection settings of its own keeps them.
type OutlierPolicy interface {
	// Outlier returns the outlier detection settings, nil if this filter configures none.
	Outlier() *config.OutlierDetection
}
