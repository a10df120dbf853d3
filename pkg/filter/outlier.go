package filter

import "github.com/weft-proxy/weft/pkg/config"

// OutlierPolicy is what the configuration of a filter is that has hosts ejected:
// reading a file, it is asked once, and what it wants is done by the clusters that
// the routes of its listener lead to.
type OutlierPolicy interface {
	// Outlier returns how outliers are detected; nil: not by this filter.
	Outlier() *config.Outlier
}
